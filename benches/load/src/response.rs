//! Where an HTTP/1.1 response to a GET ends: its status, and the framing of its body.
//!
//! It reads no more of a response than that takes, and refuses whatever would leave the end open.

use crate::Failure;

/// A head longer than this is taken for a mistake.
const MAX_HEAD: usize = 64 * 1024;

/// A chunk-size or trailer line longer than this is taken for a mistake.
const MAX_LINE: usize = 8 * 1024;

/// One response after another, as their bytes come in.
#[derive(Default)]
pub(crate) struct Response {
    state: State,
    /// The part of a head or of a chunk-size line that has come so far.
    partial: Vec<u8>,
    status: u16,
}

/// What the next byte belongs to.
#[derive(Default, Clone, Copy)]
enum State {
    #[default]
    Head,
    Body(u64),
    ChunkSize,
    /// The bytes of a chunk and the line end that follows them.
    Chunk(u64),
    Trailer,
}

/// The end of the body, as the head declares it.
enum Framing {
    Length(u64),
    Chunked,
}

impl Response {
    /// Takes received bytes; the status when they complete the response.
    ///
    /// The next response may begin then, but not before: one request is in flight at a time.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Option<u16>, Failure> {
        let mut rest = bytes;
        loop {
            match self.state {
                State::Head => {
                    let Some(head) = self.take_through(b"\r\n\r\n", MAX_HEAD, &mut rest)? else {
                        return Ok(None);
                    };
                    let (status, framing) = parse_head(&head)?;
                    self.status = status;
                    self.state = match framing {
                        // An interim response (1xx) has no body and is not the answer.
                        _ if (100..200).contains(&status) => State::Head,
                        Framing::Length(length) => State::Body(length),
                        Framing::Chunked => State::ChunkSize,
                    };
                    if matches!(self.state, State::Body(0)) {
                        return self.complete(rest);
                    }
                }
                State::Body(left) => {
                    let left = skip(left, &mut rest);
                    self.state = State::Body(left);
                    return if left == 0 { self.complete(rest) } else { Ok(None) };
                }
                State::ChunkSize => {
                    let Some(line) = self.take_through(b"\r\n", MAX_LINE, &mut rest)? else {
                        return Ok(None);
                    };
                    self.state = match chunk_size(&line)? {
                        0 => State::Trailer,
                        size => State::Chunk(size + 2),
                    };
                }
                State::Chunk(left) => {
                    let left = skip(left, &mut rest);
                    self.state = if left == 0 { State::ChunkSize } else { State::Chunk(left) };
                    if left > 0 {
                        return Ok(None);
                    }
                }
                State::Trailer => {
                    let Some(line) = self.take_through(b"\r\n", MAX_LINE, &mut rest)? else {
                        return Ok(None);
                    };
                    if line == b"\r\n" {
                        return self.complete(rest);
                    }
                }
            }
        }
    }

    fn complete(&mut self, rest: &[u8]) -> Result<Option<u16>, Failure> {
        if !rest.is_empty() {
            return Err(format!("the server sent {} bytes after its response", rest.len()));
        }
        self.state = State::Head;
        Ok(Some(self.status))
    }

    /// Takes what `rest` holds up to and including `end`, with what came before; `None` keeps it.
    fn take_through(
        &mut self,
        end: &[u8],
        limit: usize,
        rest: &mut &[u8],
    ) -> Result<Option<Vec<u8>>, Failure> {
        let kept = self.partial.len();
        // The end may straddle the pieces, so the search begins just before the new one.
        let from = kept.saturating_sub(end.len() - 1);
        self.partial.extend_from_slice(rest);
        let found = self.partial[from..].windows(end.len()).position(|window| window == end);
        let length = found.map_or(self.partial.len(), |position| from + position + end.len());
        if length > limit {
            return Err(format!("the server sent a head or line of more than {limit} bytes"));
        }
        if found.is_none() {
            *rest = &[];
            return Ok(None);
        }
        self.partial.truncate(length);
        *rest = &rest[length - kept..];
        Ok(Some(std::mem::take(&mut self.partial)))
    }
}

/// Drops up to `left` bytes from `rest`; how many are still to come.
fn skip(left: u64, rest: &mut &[u8]) -> u64 {
    let count = left.min(rest.len() as u64);
    *rest = &rest[count as usize..];
    left - count
}

fn parse_head(head: &[u8]) -> Result<(u16, Framing), Failure> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(status_of).ok_or("the server's answer is not HTTP/1.x")?;
    let mut length = None;
    let mut chunked = false;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            let value = value.trim();
            length = Some(value.parse().map_err(|_| format!("bad Content-Length {value:?}"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.trim().to_ascii_lowercase().ends_with("chunked");
        }
    }
    let framing = match (status, chunked, length) {
        (100..200 | 204 | 304, _, _) => Framing::Length(0),
        (_, true, _) => Framing::Chunked,
        (_, false, Some(length)) => Framing::Length(length),
        (_, false, None) => {
            return Err("a response has neither Content-Length nor chunks".to_owned());
        }
    };
    Ok((status, framing))
}

/// The status of an `HTTP/1.x CODE reason` line.
fn status_of(line: &str) -> Option<u16> {
    let (_, rest) = line.strip_prefix("HTTP/1.")?.split_once(' ')?;
    rest.get(..3)?.parse().ok().filter(|status| (100..1000).contains(status))
}

/// The size at the start of a chunk; extensions after `;` mean nothing here.
fn chunk_size(line: &[u8]) -> Result<u64, Failure> {
    let text = String::from_utf8_lossy(line);
    let digits = text.split(';').next().unwrap_or_default().trim();
    // Sixty bits leave room for the line end that is added to the size.
    u64::from_str_radix(digits, 16)
        .ok()
        .filter(|size| size >> 60 == 0)
        .ok_or_else(|| format!("bad chunk size {digits:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx: y\r\n\r\nhello";
    const CHUNKED: &[u8] = b"HTTP/1.1 404 Nope\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n\
        5;a=b\r\nhello\r\n1A\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nTrailer: x\r\n\r\n";

    #[test]
    fn the_end_is_found_wherever_the_pieces_are_cut() {
        for (bytes, status) in [(PLAIN, 200), (CHUNKED, 404)] {
            for first in 0..bytes.len() {
                for second in first..bytes.len() {
                    let mut response = Response::default();
                    assert_eq!(response.feed(&bytes[..first]), Ok(None));
                    assert_eq!(response.feed(&bytes[first..second]), Ok(None));
                    assert_eq!(response.feed(&bytes[second..]), Ok(Some(status)));
                }
            }
        }
    }

    #[test]
    fn responses_follow_each_other() {
        let mut response = Response::default();
        for (bytes, status) in [(CHUNKED, 404), (PLAIN, 200), (CHUNKED, 404)] {
            assert_eq!(response.feed(bytes), Ok(Some(status)));
        }
    }

    #[test]
    fn a_response_may_have_no_body() {
        let mut response = Response::default();
        assert_eq!(response.feed(b"HTTP/1.1 204 No Content\r\n\r\n"), Ok(Some(204)));
        assert_eq!(response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), Ok(Some(200)));
        let interim = [b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", PLAIN].concat();
        assert_eq!(response.feed(&interim), Ok(Some(200)));
    }

    #[test]
    fn an_open_or_broken_end_is_refused() {
        for bad in [
            &b"HTTP/1.1 200 OK\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
            b"SMTP ready\r\n\r\n",
        ] {
            assert!(Response::default().feed(bad).is_err(), "{}", bad.escape_ascii());
        }
        assert!(Response::default().feed(&vec![b'x'; MAX_HEAD + 1]).is_err());
    }
}
