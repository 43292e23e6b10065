//! `call_soon`, `call_soon_threadsafe`, `call_later` and `call_at`.

use crate::core::LoopCore;
use crate::ffi::{Keywords, Obj, Raised, Ref, Result, Spec, This};
use crate::handle::{new_queued_handle, new_timer};
use crate::names::{self, Name};

pub(crate) fn describe(spec: &mut Spec<LoopCore>) {
    spec.any(c"call_soon", call_soon)
        .any(c"call_soon_threadsafe", call_soon_threadsafe)
        .any(c"call_later", call_later)
        .any(c"call_at", call_at);
}

/// The arguments of a call: `N` that may come by name, those of the callback, and the context.
struct Call<'a, const N: usize> {
    named: [Obj<'a>; N],
    args: &'a [Obj<'a>],
    context: Option<Obj<'a>>,
}

impl<'a, const N: usize> Call<'a, N> {
    #[inline]
    fn read(
        function: &str,
        names: [&'static Name; N],
        args: &'a [Obj<'a>],
        keywords: Keywords<'a>,
    ) -> Result<Self> {
        // The usual calls: the context at most comes by name.
        if let Some((named, rest)) = args.split_first_chunk::<N>() {
            if keywords.is_empty() {
                return Ok(Self { named: *named, args: rest, context: None });
            }
            if let Some(context) = keywords.only(&names::CONTEXT) {
                return Ok(Self { named: *named, args: rest, context: Some(context) });
            }
        }
        Self::read_by_name(function, names, args, keywords)
    }

    #[cold]
    fn read_by_name(
        function: &str,
        names: [&'static Name; N],
        args: &'a [Obj<'a>],
        keywords: Keywords<'a>,
    ) -> Result<Self> {
        let (context, by_name) = keywords.read_with(function, &names::CONTEXT, names)?;
        // CPython fills from the left: what is given by position cannot be given by name too.
        let positional = args.len().min(N);
        let mut named = [Ref::none_obj(); N];
        for (place, name) in names.iter().enumerate() {
            named[place] = match (args.get(place), by_name[place]) {
                (Some(value), None) => *value,
                (None, Some(value)) => value,
                (given, _) => {
                    let fault = if given.is_some() { "multiple values" } else { "no value" };
                    let name = name.text();
                    return Err(Raised::type_error(&format!(
                        "{function}() got {fault} for argument '{name}'"
                    )));
                }
            };
        }
        Ok(Self { named, args: &args[positional..], context })
    }
}

fn call_soon(this: This<'_, LoopCore>, args: &[Obj<'_>], keywords: Keywords<'_>) -> Result<Ref> {
    let call = Call::read("call_soon", [&names::CALLBACK], args, keywords)?;
    let [callback] = call.named;
    this.check_open()?;
    this.check_in_debug(callback, "call_soon", true)?;
    let handle = this.new_ready(callback, call.args, call.context)?;
    this.push_ready(handle.clone());
    Ok(handle)
}

fn call_soon_threadsafe(
    this: This<'_, LoopCore>,
    args: &[Obj<'_>],
    keywords: Keywords<'_>,
) -> Result<Ref> {
    let call = Call::read("call_soon_threadsafe", [&names::CALLBACK], args, keywords)?;
    let [callback] = call.named;
    this.check_open()?;
    this.check_in_debug(callback, "call_soon_threadsafe", false)?;
    let handle = new_queued_handle(this, callback, call.args, call.context)?;
    this.push_from_any_thread(handle.clone());
    Ok(handle)
}

fn call_later(this: This<'_, LoopCore>, args: &[Obj<'_>], keywords: Keywords<'_>) -> Result<Ref> {
    let names = [&names::DELAY, &names::CALLBACK];
    let call = Call::read("call_later", names, args, keywords)?;
    let [delay, callback] = call.named;
    if delay.is_none() {
        return Err(Raised::type_error("delay must not be None"));
    }
    schedule(this, this.now()? + delay.to_f64()?, callback, call.args, call.context)
}

fn call_at(this: This<'_, LoopCore>, args: &[Obj<'_>], keywords: Keywords<'_>) -> Result<Ref> {
    let names = [&names::WHEN, &names::CALLBACK];
    let call = Call::read("call_at", names, args, keywords)?;
    let [when, callback] = call.named;
    if when.is_none() {
        return Err(Raised::type_error("when cannot be None"));
    }
    schedule(this, when.to_f64()?, callback, call.args, call.context)
}

fn schedule(
    this: This<'_, LoopCore>,
    when: f64,
    callback: Obj<'_>,
    args: &[Obj<'_>],
    context: Option<Obj<'_>>,
) -> Result<Ref> {
    this.check_open()?;
    this.check_in_debug(callback, "call_at", true)?;
    let timer = new_timer(this, when, callback, args, context)?;
    this.timers.borrow_mut().insert(when, timer.clone());
    Ok(timer)
}
