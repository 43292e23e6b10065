//! What the fuzz targets share. Each target is a function of bytes that must not panic.
//!
//! | how | what it does |
//! |---|---|
//! | `cargo +nightly fuzz run timers` | fuzzes |
//! | `cargo run --release --bin timers` | 100,000 inputs of a fixed seed, on stable |
//! | `cargo run --release --bin timers -- FILE_OR_FOLDER...` | replays inputs, on stable |

use std::fs;
use std::path::Path;

/// Makes a target of a function.
#[macro_export]
macro_rules! target {
    ($run:path) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $run(data));

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            $crate::replay($run)
        }
    };
}

/// Operations read off the input: each takes the bytes that it needs.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// The whole input.
    pub const fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// The next byte; `None` at the end, which ends the run.
    pub fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// As [`byte`](Self::byte), as a length.
    pub fn size(&mut self) -> Option<usize> {
        self.byte().map(usize::from)
    }
}

/// Runs the inputs that the command line names, or those of a fixed seed.
///
/// # Errors
///
/// An input that cannot be read.
pub fn replay(run: fn(&[u8])) -> std::io::Result<()> {
    let mut count = 0;
    for path in std::env::args_os().skip(1) {
        count += replay_path(run, Path::new(&path))?;
    }
    if count == 0 {
        count = replay_seeded(run, 100_000);
    }
    println!("{count} inputs: ok");
    Ok(())
}

fn replay_path(run: fn(&[u8]), path: &Path) -> std::io::Result<usize> {
    if !path.is_dir() {
        run(&fs::read(path)?);
        return Ok(1);
    }
    fs::read_dir(path)?.map(|entry| replay_path(run, &entry?.path())).sum()
}

fn replay_seeded(run: fn(&[u8]), count: usize) -> usize {
    // xorshift64*: any source of varied bytes will do, and this one needs no crate.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56
    };
    for _ in 0..count {
        let len = next();
        let data: Vec<u8> = (0..len).map(|_| next() as u8).collect();
        run(&data);
    }
    count
}
