//! Puts the native types into the module.

use pyo3::prelude::*;

use super::class::Class;
use super::error::Result;
use super::object::Imported;
use crate::core::LoopCore;
use crate::datagram::DatagramTransport;
use crate::handle::{Handle, TimerHandle};
use crate::pipe::{ReadPipeTransport, WritePipeTransport};
use crate::stream::StreamTransport;
use crate::tls::TlsTransport;

static OBJECT: Imported = Imported::new(c"builtins", c"object");
static HANDLE: Imported = Imported::new(c"asyncio", c"Handle");
static TIMER_HANDLE: Imported = Imported::new(c"asyncio", c"TimerHandle");
// What asyncio's own transports derive from; its sendfile fallback insists on it.
static TRANSPORT: Imported = Imported::new(c"asyncio.transports", c"_FlowControlMixin");
static READ_TRANSPORT: Imported = Imported::new(c"asyncio", c"ReadTransport");
static DATAGRAM_TRANSPORT: Imported = Imported::new(c"asyncio", c"DatagramTransport");

/// Makes each type on its bases and adds it under its own name.
pub(crate) fn add_types(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add::<LoopCore>(module, &[&OBJECT])?;
    add::<Handle>(module, &[&HANDLE])?;
    add::<TimerHandle>(module, &[&TIMER_HANDLE])?;
    add::<StreamTransport>(module, &[&TRANSPORT])?;
    add::<TlsTransport>(module, &[&TRANSPORT])?;
    // asyncio's datagram transports are transports of both sorts.
    add::<DatagramTransport>(module, &[&TRANSPORT, &DATAGRAM_TRANSPORT])?;
    add::<ReadPipeTransport>(module, &[&READ_TRANSPORT])?;
    add::<WritePipeTransport>(module, &[&TRANSPORT])
}

fn add<T: Class>(module: &Bound<'_, PyModule>, bases: &[&'static Imported]) -> PyResult<()> {
    let make = || -> Result<_> {
        let bases = bases.iter().map(|base| base.get()).collect::<Result<Vec<_>>>()?;
        T::cell().init::<T>(&bases)
    };
    let class = make().map_err(|_| PyErr::fetch(module.py()))?;
    // SAFETY: a new reference that the Bound takes over.
    let class = unsafe { Bound::from_owned_ptr(module.py(), class.into_ptr()) };
    let name = class.getattr("__name__")?;
    module.add(name.extract::<String>()?, class)
}
