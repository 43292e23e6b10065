//! HTTP load: keep-alive GET requests, one after the other on each connection.

use crate::Failure;
use crate::cli::HttpOptions;
use crate::drive::{self, Limit, Reply};
use crate::response::Response;

pub(crate) fn run(options: &HttpOptions) -> Result<(), Failure> {
    let request = request(options);
    let limit = Limit { seconds: options.target.seconds, messages: None };
    let mut finished = drive::run(&options.target, &limit, request.as_bytes(), HttpReply::default)?;
    let non_ok = finished.connections.iter().map(|connection| connection.reply.non_ok).sum();
    finished.report.non_ok = Some(non_ok);
    finished.report.print()
}

fn request(options: &HttpOptions) -> String {
    let HttpOptions { target, path } = options;
    // An IPv6 address stands in brackets in a URL, and so in Host.
    let host =
        if target.host.contains(':') { format!("[{}]", target.host) } else { target.host.clone() };
    let port = target.port;
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: pelton-load\r\nAccept: */*\r\n\r\n"
    )
}

/// The response on its way, and how many before it were not 200.
#[derive(Default)]
struct HttpReply {
    response: Response,
    non_ok: u64,
}

impl Reply for HttpReply {
    fn want(&self) -> usize {
        usize::MAX
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let Some(status) = self.response.feed(bytes)? else {
            return Ok(false);
        };
        self.non_ok += u64::from(status != 200);
        Ok(true)
    }
}
