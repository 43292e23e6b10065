"""call_soon, call_later, call_at: order, handles, cancellation."""

import asyncio
import contextvars
import math
import time
import weakref

import pytest
from helpers import since


def run_turns(loop, count=1):
    """Let the loop run `count` whole turns."""
    for _ in range(count):
        loop.call_soon(loop.stop)
        loop.run_forever()


def test_call_soon_keeps_order(loop):
    seen = []
    for number in range(1000):
        loop.call_soon(seen.append, number)
    run_turns(loop)
    assert seen == list(range(1000))


@pytest.mark.parametrize("count", range(7))
def test_call_soon_passes_the_arguments(loop, count):
    seen = []
    arguments = tuple(object() for _ in range(count))
    loop.call_soon(lambda *args: seen.append(args), *arguments)
    loop.call_soon_threadsafe(lambda *args: seen.append(args), *arguments)
    loop.call_later(0, lambda *args: seen.append(args), *arguments)
    loop.call_at(loop.time(), lambda *args: seen.append(args), *arguments)
    while len(seen) < 4:
        run_turns(loop)
    assert seen == [arguments] * 4
    assert all(a is b for got in seen for a, b in zip(got, arguments, strict=True))


def test_a_callback_scheduled_by_a_callback_runs_in_the_next_turn(loop):
    seen = []

    def first():
        seen.append("first")
        loop.call_soon(seen.append, "third")

    loop.call_soon(first)
    loop.call_soon(seen.append, "second")
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == ["first", "second"]
    run_turns(loop)
    assert seen == ["first", "second", "third"]


def test_stop_finishes_the_turn(loop):
    seen = []
    loop.call_soon(loop.stop)
    loop.call_soon(seen.append, 1)
    loop.run_forever()
    assert seen == [1]


def test_stop_before_run_ends_after_one_turn(loop):
    seen = []

    def again():
        seen.append(1)
        loop.call_soon(again)

    handle = loop.call_soon(again)
    loop.stop()
    loop.run_forever()
    assert seen == [1]
    handle.cancel()
    loop.stop()
    loop.run_forever()
    assert seen == [1, 1]


def test_handles_are_asyncio_handles(loop):
    def callback():
        pass

    handles = [
        loop.call_soon(callback),
        loop.call_soon_threadsafe(callback),
        loop.call_later(1000, callback),
        loop.call_at(loop.time() + 1000, callback),
    ]
    assert all(isinstance(handle, asyncio.Handle) for handle in handles)
    assert [isinstance(handle, asyncio.TimerHandle) for handle in handles] == [
        False,
        False,
        True,
        True,
    ]
    for handle in handles:
        assert not handle.cancelled()
        assert weakref.ref(handle)() is handle
        handle.cancel()
        assert handle.cancelled()


@pytest.mark.parametrize("timer", [False, True])
def test_weak_references_to_handles_end_with_them(loop, timer):
    """Also where the memory of a handle is used again for another."""

    def schedule():
        return loop.call_later(0, print) if timer else loop.call_soon(print)

    ended = []
    handle = schedule()
    gone = weakref.ref(handle, ended.append)
    handle.cancel()
    del handle
    while not ended:
        run_turns(loop)
    others = [schedule() for _ in range(3)]
    assert gone() is None
    assert ended == [gone]
    for other in others:
        other.cancel()


def test_a_cancelled_handle_does_not_run_and_lets_go(loop):
    class Argument:
        pass

    argument = Argument()
    gone = weakref.ref(argument)
    seen = []
    handle = loop.call_soon(seen.append, argument)
    handle.cancel()
    handle.cancel()
    del argument
    assert gone() is None
    run_turns(loop)
    assert seen == []


def test_a_handle_can_be_cancelled_by_one_that_runs_before_it(loop):
    seen = []
    loop.call_soon(lambda: later.cancel())
    later = loop.call_soon(seen.append, 1)
    run_turns(loop)
    assert seen == []


def test_a_handle_can_cancel_itself_while_it_runs(loop):
    seen = []

    def callback(argument):
        handle.cancel()
        seen.append(argument)

    handle = loop.call_soon(callback, "kept alive")
    run_turns(loop)
    assert seen == ["kept alive"]
    assert handle.cancelled()


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_handle_that_cancelled_itself_lets_go_when_it_has_run(loop, count):
    class Argument:
        pass

    def callback(*arguments):
        handle.cancel()
        assert handle._callback is handle._args is None
        assert gone() is arguments[0]

    argument = Argument()
    gone = weakref.ref(argument)
    handle = loop.call_soon(callback, *[argument] * count)
    del argument
    run_turns(loop)
    assert gone() is None


def test_the_callback_is_let_go_after_it_ran(loop):
    class Argument:
        pass

    argument = Argument()
    gone = weakref.ref(argument)
    loop.call_soon(lambda _: None, argument)
    loop.call_later(0, lambda _: None, argument)
    del argument
    while gone() is not None:
        run_turns(loop)


def test_repr_names_the_callback_and_the_state(loop):
    def some_callback():
        pass

    handle = loop.call_soon(some_callback)
    timer = loop.call_later(1000, some_callback)
    assert repr(handle).startswith("<Handle ")
    assert "some_callback" in repr(handle)
    assert repr(timer).startswith("<TimerHandle when=")
    assert "some_callback" in repr(timer)
    handle.cancel()
    timer.cancel()
    assert repr(handle) == "<Handle cancelled>"
    assert repr(timer) == f"<TimerHandle cancelled when={timer.when()}>"


def test_context_keyword(loop):
    variable = contextvars.ContextVar("variable", default="default")
    seen = []
    context = contextvars.copy_context()
    context.run(variable.set, "inside")
    note = lambda: seen.append(variable.get())  # noqa: E731
    loop.call_soon(note, context=context)
    loop.call_soon_threadsafe(note, context=context)
    loop.call_later(0, note, context=context)
    loop.call_at(loop.time(), note, context=context)
    while len(seen) < 4:
        run_turns(loop)
    assert seen == ["inside"] * 4
    loop.call_soon(note)
    loop.call_soon(note, context=None)
    run_turns(loop)
    assert seen[4:] == ["default"] * 2


def test_the_context_is_that_of_the_call(loop):
    variable = contextvars.ContextVar("variable")
    seen = []

    def outer(value):
        variable.set(value)
        loop.call_soon(lambda: seen.append(variable.get()))
        variable.set("changed after the call")

    contextvars.copy_context().run(outer, 1)
    contextvars.copy_context().run(outer, 2)
    run_turns(loop)
    assert seen == [1, 2]
    with pytest.raises(LookupError):
        variable.get()


@since(3, 12)
def test_get_context(loop):
    context = contextvars.copy_context()
    handles = [
        loop.call_soon(print, context=context),
        loop.call_soon_threadsafe(print, context=context),
        loop.call_later(1000, print, context=context),
    ]
    assert all(handle.get_context() is context for handle in handles)
    plain = loop.call_soon(print)
    assert isinstance(plain.get_context(), contextvars.Context)
    for handle in [*handles, plain]:
        handle.cancel()


def test_every_argument_may_come_by_name(loop):
    seen = []
    loop.call_soon(callback=lambda: seen.append("soon"))
    loop.call_soon_threadsafe(callback=lambda: seen.append("threadsafe"))
    loop.call_later(delay=0, callback=lambda: seen.append("later"))
    loop.call_at(loop.time(), callback=lambda: seen.append("at"))
    loop.call_at(when=loop.time(), callback=loop.stop, context=contextvars.copy_context())
    loop.run_forever()
    assert seen == ["soon", "threadsafe", "later", "at"]


@pytest.mark.parametrize(
    ("args", "keywords"),
    [((), {}), ((print,), {"callback": print}), ((), {"context": None}), ((), {"callbck": print})],
)
def test_wrong_arguments_schedule_nothing(loop, args, keywords):
    with pytest.raises(TypeError, match="argument"):
        loop.call_soon(*args, **keywords)
    with pytest.raises(TypeError, match="argument"):
        loop.call_later(1, *args, **keywords)


def test_unknown_keywords_are_refused(loop):
    for call in (loop.call_soon, loop.call_soon_threadsafe):
        with pytest.raises(TypeError):
            call(print, contexts=None)
    with pytest.raises(TypeError):
        loop.call_later(1, print, delay_me=1)
    with pytest.raises(TypeError):
        loop.call_soon()
    with pytest.raises(TypeError):
        loop.call_later(1)


def test_exception_in_a_callback_reaches_the_handler(loop, errors):
    def broken():
        raise ZeroDivisionError("broken on purpose")

    seen = []
    handle = loop.call_soon(broken)
    loop.call_soon(seen.append, 1)
    run_turns(loop)
    assert seen == [1]
    (context,) = errors
    assert isinstance(context["exception"], ZeroDivisionError)
    assert context["handle"] is handle
    assert context["message"].startswith("Exception in callback ")
    assert "broken" in context["message"]
    errors.clear()


def test_exception_in_a_timer_reaches_the_handler(loop, errors):
    handle = loop.call_later(0.001, lambda: 1 / 0)
    while not errors:
        run_turns(loop)
    assert errors[0]["handle"] is handle
    assert isinstance(errors[0]["exception"], ZeroDivisionError)
    errors.clear()


@pytest.mark.parametrize("kind_of_exit", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("how", ["soon", "timer", "threadsafe"])
def test_exits_come_through_and_the_loop_goes_on(loop, kind_of_exit, how):
    def leave():
        raise kind_of_exit

    seen = []
    if how == "soon":
        loop.call_soon(leave)
    elif how == "timer":
        loop.call_later(0, leave)
    else:
        loop.call_soon_threadsafe(leave)
    with pytest.raises(kind_of_exit):
        loop.run_forever()
    assert not loop.is_running()
    loop.call_soon(seen.append, 1)
    run_turns(loop, 2)
    assert seen == [1]
    assert loop.run_until_complete(asyncio.sleep(0, "fine")) == "fine"


def test_callbacks_after_an_exit_are_not_lost(loop):
    def leave():
        raise SystemExit

    seen = []
    loop.call_soon(seen.append, 1)
    loop.call_soon(leave)
    loop.call_soon(seen.append, 2)
    with pytest.raises(SystemExit):
        loop.run_forever()
    assert seen == [1]
    run_turns(loop)
    assert seen == [1, 2]


def test_timers_are_never_early(loop):
    missed = []

    def check(due):
        now = time.monotonic()
        if now < due:
            missed.append(due - now)

    handles = []
    start = loop.time()
    for number in range(60):
        due = start + number * 0.00073
        handles.append(loop.call_at(due, check, due))
        delay = number * 0.00091
        handles.append(loop.call_later(delay, check, loop.time() + delay - 1e-9))
    loop.call_later(0.07, loop.stop)
    loop.run_forever()
    assert missed == []
    assert not any(handle.cancelled() for handle in handles)


def test_timers_run_in_the_order_of_their_deadlines(loop):
    seen = []
    now = loop.time()
    for number in [5, 3, 9, 1, 7, 2, 8, 4, 6, 0]:
        loop.call_at(now + number * 1e-4, seen.append, number)
    loop.call_at(now + 2e-3, loop.stop)
    loop.run_forever()
    assert seen == list(range(10))


def test_timers_due_in_the_past_run_at_once_in_order(loop):
    seen = []
    now = loop.time()
    loop.call_at(now - 1, seen.append, "b")
    loop.call_at(now - 2, seen.append, "a")
    loop.call_later(-5, seen.append, "first")
    loop.call_at(now - 0.5, loop.stop)
    loop.run_forever()
    assert seen == ["first", "a", "b"]


def test_a_due_timer_runs_in_the_turn_in_which_it_is_due(loop):
    seen = []
    loop.call_at(loop.time() - 1, seen.append, "timer")
    loop.call_soon(seen.append, "soon")
    run_turns(loop)
    assert sorted(seen) == ["soon", "timer"]


def test_a_timer_set_by_a_callback_comes_after_what_it_scheduled_before(loop):
    """asyncio looks for due timers once a turn, before it runs the callbacks."""
    seen = []

    def callback():
        loop.call_soon(seen.append, "soon")
        loop.call_at(loop.time() - 1, seen.append, "timer")
        loop.call_at(loop.time() - 1, loop.stop)

    loop.call_soon(callback)
    loop.run_forever()
    assert seen == ["soon", "timer"]


def test_loop_time_is_the_monotonic_clock(loop):
    before = time.monotonic()
    now = loop.time()
    after = time.monotonic()
    assert isinstance(now, float)
    assert before <= now <= after
    values = {loop.time() for _ in range(2000)}
    assert len(values) > 100, "the clock moves in coarse steps"


def test_timer_handle_when(loop):
    due = loop.time() + 1234.5678
    handle = loop.call_at(due, print)
    assert handle.when() == due
    handle.cancel()
    assert handle.when() == due
    before = loop.time()
    handle = loop.call_later(1000, print)
    assert before + 1000 <= handle.when() <= loop.time() + 1000
    handle.cancel()


def test_timer_handle_comparison(loop):
    def callback():
        pass

    now = loop.time() + 1000
    early = loop.call_at(now, callback)
    same = loop.call_at(now, callback)
    late = loop.call_at(now + 1, callback)
    other = loop.call_at(now, print)
    assert early == same
    assert early != other
    assert early != late
    assert hash(early) == hash(same) == hash(now)
    assert early < late
    assert early <= late
    assert early <= same
    assert late > early
    assert late >= early
    assert same >= early
    assert not early < same
    assert not early > same
    assert not early <= other
    same.cancel()
    assert early != same
    assert early != now
    with pytest.raises(TypeError):
        assert early < 3
    for handle in (early, late, other):
        handle.cancel()


@pytest.mark.parametrize("call", ["call_later", "call_at"])
def test_none_is_no_time(loop, call):
    with pytest.raises(TypeError):
        getattr(loop, call)(None, print)


def test_a_word_is_no_delay(loop):
    with pytest.raises(TypeError):
        loop.call_later("soon", print)


def test_integers_and_floats_like_numbers_are_times(loop):
    seen = []
    loop.call_later(0, seen.append, "int")
    loop.call_later(False, seen.append, "bool")
    loop.call_at(int(loop.time()) - 1, seen.append, "int at")
    while len(seen) < 3:
        run_turns(loop)
    assert sorted(seen) == ["bool", "int", "int at"]


def test_endless_delays_do_not_overflow_the_poll(loop):
    handles = [
        loop.call_later(1e9, print),
        loop.call_later(math.inf, print),
        loop.call_at(1e300, print),
    ]
    seen = []
    loop.call_later(0.002, seen.append, 1)
    loop.call_later(0.004, loop.stop)
    loop.run_forever()
    assert seen == [1]
    for handle in handles:
        handle.cancel()


def test_many_cancelled_timers_are_dropped(loop):
    class Argument:
        pass

    alive = weakref.WeakSet()
    for _ in range(5000):
        argument = Argument()
        alive.add(argument)
        loop.call_later(3600, print, argument).cancel()
    del argument
    run_turns(loop, 2)
    assert len(alive) == 0


def test_cancelled_timers_do_not_disturb_the_others(loop):
    seen = []
    now = loop.time()
    handles = [loop.call_at(now + (number % 97) * 1e-5, seen.append, number) for number in range(3000)]
    for number, handle in enumerate(handles):
        if number % 3:
            handle.cancel()
    loop.call_at(now + 2e-3, loop.stop)
    loop.run_forever()
    expected = [number for number in range(3000) if number % 3 == 0]
    assert sorted(seen) == expected
    assert [number % 97 for number in seen] == sorted(number % 97 for number in expected)


def test_a_timer_cancelled_by_an_earlier_one_does_not_run(loop):
    seen = []
    now = loop.time() - 1
    loop.call_at(now, lambda: second.cancel())
    second = loop.call_at(now + 0.1, seen.append, 1)
    run_turns(loop, 2)
    assert seen == []


def test_a_finalizer_may_schedule_while_a_timer_is_dropped(loop):
    seen = []

    class Argument:
        def __del__(self):
            loop.call_later(0, seen.append, 1)
            loop.call_soon(seen.append, 2)

    loop.call_later(1000, print, Argument()).cancel()
    loop.call_soon(lambda _: None, Argument())
    while len(seen) < 4:
        run_turns(loop)
    assert sorted(seen) == [1, 1, 2, 2]


def test_scheduling_on_a_closed_loop_is_refused(loop):
    loop.close()
    for schedule in (
        lambda: loop.call_soon(print),
        lambda: loop.call_soon_threadsafe(print),
        lambda: loop.call_later(1, print),
        lambda: loop.call_at(1, print),
    ):
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            schedule()


def test_close_drops_what_was_scheduled(loop):
    class Argument:
        pass

    argument = Argument()
    gone = weakref.ref(argument)
    loop.call_soon(print, argument)
    loop.call_soon_threadsafe(print, argument)
    loop.call_later(10, print, argument)
    del argument
    loop.close()
    assert gone() is None
