//! `pelton-load`: the yardsticks of pelton's benchmarks in one binary.
//!
//! - `echo` and `http` are closed-loop load generators: each connection has exactly one request
//!   in flight, and sends the next as soon as the answer to the last is complete. Over TLS they
//!   speak by rustls, so that the load shares no code with what is measured.
//! - `handshakes` opens one connection after the other.
//! - `floor` is the least an epoll server can do per message: one wait, one receive, one send;
//!   over TLS by OpenSSL on the socket itself.

#![deny(unsafe_code)]

mod channel;
mod cli;
mod descriptors;
mod drive;
mod echo;
mod floor;
mod handshakes;
mod histogram;
mod http;
mod openssl;
mod poller;
mod report;
mod response;

use std::process::ExitCode;

use clap::Parser;

/// What a failed run says to its user; the command line prints it after the program's name.
type Failure = String;

fn main() -> ExitCode {
    let outcome = match cli::Cli::parse().command {
        cli::Command::Echo(options) => echo::run(&options),
        cli::Command::Handshakes(options) => handshakes::run(&options),
        cli::Command::Http(options) => http::run(&options),
        cli::Command::Floor(options) => floor::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("pelton-load: {failure}");
            ExitCode::FAILURE
        }
    }
}
