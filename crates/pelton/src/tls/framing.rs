//! Where records begin and end, by their headers alone (RFC 8446, 5.1).

/// Follows the records of a stream of ciphertext, so that an end inside one can be told from an
/// end between two. It looks at five bytes a record and keeps none.
///
/// # Examples
///
/// ```
/// use pelton::tls::Framing;
///
/// let mut framing = Framing::new();
/// framing.advance(&[23, 3, 3, 0, 2, 0xaa]);
/// assert!(!framing.is_between_records(), "a byte is missing");
/// framing.advance(&[0xbb]);
/// assert!(framing.is_between_records());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Bytes of the header that have come, below `HEADER`.
    header: u8,
    /// The length that the header gives, as far as it is known.
    length: u16,
    /// Bytes of the body that are still to come.
    left: u16,
}

/// Type, version and length.
const HEADER: u8 = 5;

impl Framing {
    /// At the beginning of a stream.
    pub const fn new() -> Self {
        Self { header: 0, length: 0, left: 0 }
    }

    /// Told what has come.
    pub fn advance(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while let Some((&first, behind)) = bytes.split_first() {
            if self.left > 0 {
                let skip = bytes.len().min(usize::from(self.left));
                self.left -= skip as u16;
                bytes = &bytes[skip..];
                continue;
            }
            bytes = behind;
            self.header += 1;
            if self.header >= HEADER - 1 {
                self.length = self.length << 8 | u16::from(first);
            }
            if self.header == HEADER {
                *self = Self { header: 0, length: 0, left: self.length };
            }
        }
    }

    /// Whether the last record that began has come whole.
    pub const fn is_between_records(&self) -> bool {
        self.header == 0 && self.left == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::Framing;

    fn records(bodies: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let (mut stream, mut ends) = (Vec::new(), vec![0]);
        for body in bodies {
            stream.extend([23, 3, 3]);
            stream.extend((body.len() as u16).to_be_bytes());
            stream.extend(body);
            ends.push(stream.len());
        }
        (stream, ends)
    }

    proptest! {
        #[test]
        fn an_end_is_between_records_where_one_ends(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..700), 0..5),
            cut in any::<prop::sample::Index>(),
            piece in 1usize..40,
        ) {
            let (stream, ends) = records(&bodies);
            let cut = cut.index(stream.len() + 1);
            let mut framing = Framing::new();
            stream[..cut].chunks(piece).for_each(|piece| framing.advance(piece));
            prop_assert_eq!(framing.is_between_records(), ends.contains(&cut));
        }
    }

    #[test]
    fn the_longest_length_and_an_empty_record() {
        let mut framing = Framing::new();
        framing.advance(&[23, 3, 3, 0xff, 0xff]);
        framing.advance(&vec![0; 0xfffe]);
        assert!(!framing.is_between_records());
        framing.advance(&[0]);
        assert!(framing.is_between_records());
        framing.advance(&[23, 3, 3, 0, 0]);
        assert!(framing.is_between_records());
    }
}
