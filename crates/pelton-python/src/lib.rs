//! `pelton._pelton`: the native half of pelton for Python.
//!
//! | module | what it is |
//! |---|---|
//! | [`core`] | `LoopCore`, the native base of the loop: what it holds |
//! | [`schedule`] | `call_soon`, `call_later` and the like |
//! | [`turn`] | one turn of the loop |
//! | [`handle`] | `Handle` and `TimerHandle` |
//! | [`watch`] | `add_reader` and `add_writer` |
//! | [`listener`] | listening sockets |
//! | [`stream`] | `StreamTransport` |
//! | [`tls`] | `TlsTransport` |
//! | [`pipe`] | `ReadPipeTransport` and `WritePipeTransport` |
//! | [`stats`] | the counters behind `loop.stats()` |
//! | [`datagram`] | `DatagramTransport` |
//! | [`flow`] | the limits of a write buffer, as Python gives them |
//! | [`names`] | every Python name used from here |
//! | [`ffi`] | the unsafe room: references, calls, native types |
//!
//! Native is what runs per callback or per packet. What runs per connection or per loop is
//! Python, in `python/pelton/`.

#![deny(unsafe_code)]

mod core;
mod datagram;
mod ffi;
mod flow;
mod handle;
mod listener;
mod names;
mod pipe;
mod schedule;
mod stats;
mod stream;
mod tls;
mod turn;
mod watch;

use pyo3::prelude::*;

#[pymodule]
fn _pelton(module: &Bound<'_, PyModule>) -> PyResult<()> {
    ffi::add_types(module)?;
    module.add_function(wrap_pyfunction!(tls_engine, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}

/// Which engine TLS connections of this process use: "direct" or "fallback".
#[pyfunction]
fn tls_engine(py: Python<'_>) -> PyResult<&'static str> {
    tls::engine_name().map_err(|_| PyErr::fetch(py))
}
