//! The unsafe room: all that touches CPython's C API with raw pointers.
//!
//! Everything outside this folder is safe Rust over four ideas: [`Ref`] (a strong reference),
//! [`Obj`] (a borrowed one), [`Slot`] (a field that holds one) and [`Class`] (a native type with
//! its payload). All of them may be used only while the thread is attached to the interpreter;
//! none is `Send`, and the one detached region ([`wait_detached`]) runs a poll and nothing else.

#![allow(unsafe_code)]

mod buffer;
mod bytes;
mod call;
mod class;
mod clock;
mod descriptor;
mod error;
mod kept;
mod module;
mod object;
mod openssl;
mod spec;

pub(crate) use buffer::{BufferView, lend, lend_mut};
pub(crate) use bytes::{BytesRef, ReadBuffer};
pub(crate) use call::{Context, wait_detached};
pub(crate) use class::{Class, This, TypeCell, Visit, make, make_untracked};
pub(crate) use clock::monotonic;
pub(crate) use descriptor::{SocketNumber, borrow_fd};
pub(crate) use error::{Raised, Result, finally};
pub(crate) use kept::KeptCall;
pub(crate) use module::add_types;
pub(crate) use object::{Imported, Interned, Obj, Ref, Slot};
pub(crate) use openssl::{OwnedSession, find_libssl};
pub(crate) use spec::{Keywords, Spec};
