//! The command line: what may be asked, and the bounds within which it makes sense.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// The largest echoed message: what a benchmark could want, and no more than memory has room for.
const MAX_SIZE: u64 = 64 << 20;

/// More connections than one client address has ephemeral ports for cannot be made.
const MAX_CONNECTIONS: u64 = 60_000;

/// Closed-loop load generators for echo and HTTP servers, and the bare epoll echo server that
/// they are compared with.
#[derive(Parser, Debug)]
#[command(name = "pelton-load", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Send messages to an echo server and wait for each to come back; print one JSON line.
    Echo(EchoOptions),
    /// Open a TLS connection, echo one byte, close it, and again; print one JSON line.
    Handshakes(HandshakeOptions),
    /// Send keep-alive HTTP/1.1 GET requests; print one JSON line.
    Http(HttpOptions),
    /// Serve echo with the fewest system calls per message; print `ready PORT`, run until killed.
    ///
    /// With --certificates by OpenSSL, as a bare server calls it.
    Floor(FloorOptions),
}

#[derive(Args, Debug)]
pub(crate) struct EchoOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Bytes in a message.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=MAX_SIZE))]
    pub(crate) size: u64,
    /// Stop after this many messages in all, or after --seconds, whichever comes first.
    ///
    /// As many messages as connections give every connection exactly one.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) messages: Option<u64>,
    /// After the result is printed, keep the connections open and idle for this long.
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) hold: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct HttpOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The path to ask for.
    #[arg(long, default_value = "/", value_parser = request_path)]
    pub(crate) path: String,
}

#[derive(Args, Debug)]
pub(crate) struct HandshakeOptions {
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Args, Debug)]
pub(crate) struct FloorOptions {
    /// The TCP port to listen on; 0 takes a free one.
    pub(crate) port: u16,
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: std::net::IpAddr,
    /// Serve over TLS with the cert.pem and key.pem of this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) certificates: Option<PathBuf>,
    /// The libssl that TLS is served with.
    #[arg(long, value_name = "FILE", default_value = "libssl.so.3")]
    pub(crate) libssl: String,
    /// Let OpenSSL give its buffers back between records (SSL_MODE_RELEASE_BUFFERS).
    #[arg(long)]
    pub(crate) release_buffers: bool,
}

/// Where the load goes, from how many connections, for how long.
#[derive(Args, Debug)]
pub(crate) struct Target {
    /// The server's name or address.
    pub(crate) host: String,
    /// The server's TCP port.
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Connections, each with one request in flight.
    #[arg(
        long,
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=MAX_CONNECTIONS)
    )]
    pub(crate) conns: u64,
    /// How long to start new requests; those in flight at the end are waited for.
    #[arg(long, default_value = "3", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Speak TLS, and trust who stands in the ca.pem of this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) certificates: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if value > 0.0 && value <= 86_400.0 {
        Ok(Duration::from_secs_f64(value))
    } else {
        Err("must be above 0 and at most 86400 seconds".to_owned())
    }
}

fn request_path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err("must begin with '/'".to_owned());
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must be printable ASCII without spaces; percent-encode the rest".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn seconds_are_positive_and_finite() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "nan", "inf", "1e9", "x", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_cannot_carry_a_second_header() {
        assert!(request_path("/a?b=c").is_ok());
        for bad in ["", "a", "/ b", "/\r\nX: y", "/é"] {
            assert!(request_path(bad).is_err(), "{bad}");
        }
    }
}
