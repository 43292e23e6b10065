//! Buffers. An idle connection holds none.

mod write_queue;

pub use write_queue::WriteQueue;
