//! Handshakes: connections that are made, used once, and closed.
//!
//! Blocking, with a thread for each connection under way: what is measured is the server.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Stream};

use crate::cli::HandshakeOptions;
use crate::histogram::Histogram;
use crate::report::Report;
use crate::{Failure, channel, drive};

pub(crate) fn run(options: &HandshakeOptions) -> Result<(), Failure> {
    let target = &options.target;
    let folder = target.certificates.as_deref().ok_or("handshakes need --certificates")?;
    let trust = channel::trust(folder)?;
    let address = drive::resolve(target)?;
    let start = Instant::now();
    let deadline = start + target.seconds;
    let outcomes: Vec<_> = thread::scope(|scope| {
        let visitors: Vec<_> = (0..target.conns)
            .map(|_| scope.spawn(|| visit_until(deadline, address, &trust)))
            .collect();
        visitors.into_iter().map(|visitor| visitor.join().expect("no visitor panics")).collect()
    });
    let elapsed = start.elapsed();
    let mut latencies = Histogram::new();
    for outcome in outcomes {
        outcome?.into_iter().for_each(|nanos| latencies.record(nanos));
    }
    Report { latencies, elapsed, non_ok: None }.print()
}

/// One visit after the other; the nanoseconds of each.
fn visit_until(
    deadline: Instant,
    address: SocketAddr,
    trust: &Arc<ClientConfig>,
) -> Result<Vec<u64>, Failure> {
    let mut taken = Vec::new();
    loop {
        let start = Instant::now();
        if start >= deadline {
            return Ok(taken);
        }
        visit(address, trust).map_err(|error| format!("a handshake failed: {error}"))?;
        taken.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Shakes hands, echoes one byte, and says goodbye.
fn visit(address: SocketAddr, trust: &Arc<ClientConfig>) -> Result<(), std::io::Error> {
    let mut socket = drive::connect(address)?;
    let name = ServerName::try_from(channel::NAME).expect("the name is a valid one");
    let mut session =
        ClientConnection::new(Arc::clone(trust), name).map_err(std::io::Error::other)?;
    let mut stream = Stream::new(&mut session, &mut socket);
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])?;
    session.send_close_notify();
    session.write_tls(&mut socket).map(drop)
}
