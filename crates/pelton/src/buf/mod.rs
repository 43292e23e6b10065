//! Bytes between the program and the kernel.

mod write_queue;

pub use write_queue::WriteQueue;
