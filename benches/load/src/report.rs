//! The result of a run, and the one line of JSON that it is printed as.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use crate::Failure;
use crate::histogram::Histogram;

/// What a run came to.
pub(crate) struct Report {
    /// Nanoseconds from the start of a request to the end of its answer.
    pub(crate) latencies: Histogram,
    /// From the first request's start to the last answer's end.
    pub(crate) elapsed: Duration,
    /// Answers whose status was not 200; only HTTP has them.
    pub(crate) non_ok: Option<u64>,
}

impl Report {
    /// Prints the line and flushes it: a driver waits for it while this process lives on.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{self}")
            .and_then(|()| out.flush())
            .map_err(|error| format!("cannot print the result: {error}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages = self.latencies.total();
        let seconds = self.elapsed.as_secs_f64();
        let rate = messages as f64 / seconds.max(1e-9);
        let micros = |share| self.latencies.quantile(share) as f64 / 1e3;
        let (p50, p99) = (micros(0.5), micros(0.99));
        write!(f, r#"{{"messages": {messages}, "seconds": {seconds:.6}, "rate": {rate:.1}, "#)?;
        write!(f, r#""p50_us": {p50:.1}, "p99_us": {p99:.1}"#)?;
        if let Some(non_ok) = self.non_ok {
            write!(f, r#", "non_200": {non_ok}"#)?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_json_with_fixed_names() {
        let mut latencies = Histogram::new();
        latencies.record(200);
        latencies.record(250);
        let report = Report { latencies, elapsed: Duration::from_millis(500), non_ok: Some(1) };
        assert_eq!(
            report.to_string(),
            r#"{"messages": 2, "seconds": 0.500000, "rate": 4.0, "p50_us": 0.2, "p99_us": 0.2, "non_200": 1}"#
        );
    }
}
