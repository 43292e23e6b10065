//! `Handle` and `TimerHandle`: a callback with its arguments and context.
//!
//! True subtypes of asyncio's classes; freed handles are reused. CPython: `asyncio/events.py`.
//!
//! A handle of `call_soon` is hidden from the garbage collector as long as the ready queue of a
//! running loop holds it, since it cannot be garbage there: most never need to be shown. It is
//! shown when it has run and someone else holds it, or when the loop stops before.

use std::cell::Cell;
use std::ffi::CStr;

use crate::core::LoopCore;
use crate::ffi::{Class, Context, KeptCall, Obj, Ref, Result, Slot, Spec, This, TypeCell};
use crate::ffi::{Visit, make, make_untracked};
use crate::names::support;

/// What both kinds of handle hold.
pub(crate) struct Callback {
    call: KeptCall,
    cancelled: Cell<bool>,
    owner: Slot,
    /// Where it was made (debug mode).
    source: Slot,
    /// How it looked before it was cancelled (debug mode).
    repr: Slot,
}

impl Callback {
    #[inline]
    fn new(owner: Obj<'_>, callback: Obj<'_>, args: &[Obj<'_>], context: Ref) -> Self {
        Self {
            call: KeptCall::new(callback, args, context),
            cancelled: Cell::new(false),
            owner: Slot::new(owner.to_ref()),
            source: Slot::empty(),
            repr: Slot::empty(),
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }

    /// Calls it in its context; a cancelled one does nothing.
    #[inline(always)]
    pub(crate) fn run(&self) -> Result<()> {
        self.call.run()
    }

    fn traverse(&self, visit: &mut Visit<'_>) {
        self.call.traverse(visit);
        for slot in [&self.owner, &self.source, &self.repr] {
            visit.slot(slot);
        }
    }

    fn clear(&self) {
        self.call.clear();
        self.owner.clear();
        self.source.clear();
    }
}

/// What the methods of both classes need.
trait Holder: Class {
    fn held(&self) -> &Callback;

    /// Runs when a handle is cancelled for the first time.
    fn on_cancel(_this: This<'_, Self>) {}
}

fn cancel<T: Holder>(this: This<'_, T>) -> Result<Ref> {
    let held = this.held();
    if !held.cancelled.get() {
        T::on_cancel(this);
        held.cancelled.set(true);
        let owner = held.owner.get();
        if owner.as_ref().and_then(|o| This::<LoopCore>::of(o.obj())).is_some_and(|c| c.is_debug())
        {
            held.repr.set(this.obj().repr()?);
        }
        held.call.forget();
    }
    Ok(Ref::none())
}

fn describe<T: Holder>(spec: &mut Spec<T>) {
    spec.none(c"cancel", cancel::<T>)
        .none(c"cancelled", |this| Ok(Ref::bool(this.held().cancelled.get())))
        .none(c"get_context", |this| Ok(this.held().call.context()))
        .none(c"_run", |this| {
            let held = this.held();
            if let Some(owner) = held.owner.get()
                && let Some(core) = This::<LoopCore>::of(owner.obj())
            {
                core.run_handle(this.obj())?;
            }
            Ok(Ref::none())
        })
        .get(c"_callback", |this| Ok(this.held().call.callable().unwrap_or_else(Ref::none)))
        .get(c"_args", |this| Ok(this.held().call.args()?.unwrap_or_else(Ref::none)))
        .get(c"_context", |this| Ok(this.held().call.context()))
        .get(c"_loop", |this| Ok(this.held().owner.get_or_none()))
        .get(c"_cancelled", |this| Ok(Ref::bool(this.held().cancelled.get())))
        .get(c"_source_traceback", |this| Ok(this.held().source.get_or_none()))
        .get(c"_repr", |this| Ok(this.held().repr.get_or_none()));
}

/// A callback that is ready to run, or one that waits for a descriptor.
pub(crate) struct Handle(Callback);

static HANDLE: TypeCell = TypeCell::new();

impl Class for Handle {
    const NAME: &'static CStr = c"pelton._pelton.Handle";
    const DOC: &'static CStr = c"A scheduled callback; made by the loop's call_soon().";
    const FREELIST: usize = 1024;

    fn cell() -> &'static TypeCell {
        &HANDLE
    }

    fn spec(spec: &mut Spec<Self>) {
        describe(spec);
    }

    fn traverse(&self, visit: &mut Visit<'_>) {
        self.0.traverse(visit);
    }

    fn clear(&self) {
        self.0.clear();
    }
}

impl Holder for Handle {
    fn held(&self) -> &Callback {
        &self.0
    }
}

/// A callback with a deadline.
pub(crate) struct TimerHandle {
    held: Callback,
    /// Seconds of the loop's clock.
    when: f64,
    scheduled: Cell<bool>,
}

static TIMER_HANDLE: TypeCell = TypeCell::new();

impl Class for TimerHandle {
    const NAME: &'static CStr = c"pelton._pelton.TimerHandle";
    const DOC: &'static CStr = c"A callback with a deadline; made by call_later() and call_at().";
    const FREELIST: usize = 1024;

    fn cell() -> &'static TypeCell {
        &TIMER_HANDLE
    }

    fn spec(spec: &mut Spec<Self>) {
        describe(spec);
        spec.none(c"when", |this| Ref::float(this.when))
            .get(c"_when", |this| Ref::float(this.when))
            .get(c"_scheduled", |this| Ok(Ref::bool(this.scheduled.get())));
    }

    fn traverse(&self, visit: &mut Visit<'_>) {
        self.held.traverse(visit);
    }

    fn clear(&self) {
        self.held.clear();
    }
}

impl Holder for TimerHandle {
    fn held(&self) -> &Callback {
        &self.held
    }

    fn on_cancel(this: This<'_, Self>) {
        if this.scheduled.get()
            && let Some(owner) = this.held.owner.get()
            && let Some(core) = This::<LoopCore>::of(owner.obj())
        {
            core.timer_cancelled();
        }
    }
}

impl Handle {
    /// Cancels it; what an error of `repr()` would say in debug mode is of no use to anyone.
    pub(crate) fn cancel_quietly(&self) {
        self.0.cancelled.set(true);
        self.0.call.forget();
    }
}

impl TimerHandle {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.held.is_cancelled()
    }

    /// Says that the loop's timers no longer hold it.
    pub(crate) fn unschedule(&self) {
        self.scheduled.set(false);
    }
}

/// A new `Handle`. `context` is the current one's copy where the caller gives none.
pub(crate) fn new_handle(
    owner: This<'_, LoopCore>,
    callback: Obj<'_>,
    args: &[Obj<'_>],
    context: Option<Obj<'_>>,
) -> Result<Ref> {
    let handle = new_queued_handle(owner, callback, args, context)?;
    handle.obj().track();
    Ok(handle)
}

/// As `new_handle`, for the ready queue of a loop that runs: the collector does not see it.
#[inline(always)]
pub(crate) fn new_queued_handle(
    owner: This<'_, LoopCore>,
    callback: Obj<'_>,
    args: &[Obj<'_>],
    context: Option<Obj<'_>>,
) -> Result<Ref> {
    let context = context_or_copy(context)?;
    let handle = make_untracked(|| Handle(Callback::new(owner.obj(), callback, args, context)))?;
    complete(owner, &handle, args)?;
    Ok(handle)
}

/// A new `TimerHandle`, due at `when` seconds of the loop's clock.
pub(crate) fn new_timer(
    owner: This<'_, LoopCore>,
    when: f64,
    callback: Obj<'_>,
    args: &[Obj<'_>],
    context: Option<Obj<'_>>,
) -> Result<Ref> {
    let context = context_or_copy(context)?;
    let handle = make(|| TimerHandle {
        held: Callback::new(owner.obj(), callback, args, context),
        when,
        scheduled: Cell::new(true),
    })?;
    complete(owner, &handle, args)?;
    Ok(handle)
}

#[inline]
fn context_or_copy(context: Option<Obj<'_>>) -> Result<Ref> {
    match context {
        Some(context) if !context.is_none() => Ok(context.to_ref()),
        _ => Context::copy_current(),
    }
}

/// What a new handle may still need: room for many arguments, and in debug mode where it was made.
#[inline]
fn complete(owner: This<'_, LoopCore>, handle: &Ref, args: &[Obj<'_>]) -> Result<()> {
    if KeptCall::fits(args) && !owner.is_debug() {
        return Ok(());
    }
    complete_slowly(owner, handle, args)
}

#[cold]
fn complete_slowly(owner: This<'_, LoopCore>, handle: &Ref, args: &[Obj<'_>]) -> Result<()> {
    let Some(held) = callback_of(handle.obj()) else { return Ok(()) };
    if !KeptCall::fits(args) {
        held.call.put_in_tuple(args)?;
    }
    if owner.is_debug() {
        held.source.set(support::FORMAT_STACK.get()?.call(&[])?);
    }
    Ok(())
}

/// The callback within a handle of either kind.
#[inline]
pub(crate) fn callback_of<'a>(handle: Obj<'a>) -> Option<&'a Callback> {
    if HANDLE.is_type_of(handle) {
        return This::<Handle>::of(handle).map(|handle| &handle.payload().0);
    }
    This::<TimerHandle>::of(handle).map(|timer| &timer.payload().held)
}
