//! Echo load: a message goes out, and the same bytes must come back.

use std::rc::Rc;

use crate::Failure;
use crate::cli::EchoOptions;
use crate::drive::{self, Limit, Reply};

pub(crate) fn run(options: &EchoOptions) -> Result<(), Failure> {
    let message: Rc<[u8]> = pattern(options.size as usize).into();
    let limit = Limit { seconds: options.target.seconds, messages: options.messages };
    let finished =
        drive::run(&options.target, &limit, &message, || EchoReply::new(Rc::clone(&message)))?;
    finished.report.print()?;
    if let Some(hold) = options.hold {
        std::thread::sleep(hold);
    }
    Ok(())
}

/// Bytes whose period (251) divides no buffer size, so that a misplaced piece shows.
fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251) as u8).collect()
}

/// The message on its way back.
///
/// The first on each connection is compared byte for byte; later ones are counted, to keep the
/// load cheap.
struct EchoReply {
    message: Rc<[u8]>,
    received: usize,
    compared: bool,
}

impl EchoReply {
    fn new(message: Rc<[u8]>) -> Self {
        Self { message, received: 0, compared: false }
    }
}

impl Reply for EchoReply {
    fn want(&self) -> usize {
        self.message.len() - self.received
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let end = self.received + bytes.len();
        if !self.compared && self.message.get(self.received..end) != Some(bytes) {
            return Err("the server sent back something else than it was sent".to_owned());
        }
        self.received = end;
        if end < self.message.len() {
            return Ok(false);
        }
        self.received = 0;
        self.compared = true;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_ends_with_its_last_byte() {
        let mut reply = EchoReply::new(pattern(600).into());
        assert_eq!(reply.feed(&pattern(600)[..400]), Ok(false));
        assert_eq!(reply.want(), 200);
        assert_eq!(reply.feed(&pattern(600)[400..]), Ok(true));
        assert_eq!(reply.want(), 600);
    }

    #[test]
    fn a_wrong_first_echo_is_refused() {
        let mut reply = EchoReply::new(pattern(600).into());
        assert!(reply.feed(&pattern(600)[1..10]).is_err());
    }
}
