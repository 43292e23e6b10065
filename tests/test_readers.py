"""add_reader, add_writer and their removal, on sockets, pipes and terminals."""

import asyncio
import os
import socket
import weakref

import pytest
from helpers import Recorder, settle


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


async def test_return_values(loop, ends):
    left, _ = ends
    assert loop.remove_reader(left) is False
    assert loop.remove_writer(left) is False
    loop.add_reader(left, print)
    assert loop.remove_writer(left) is False
    loop.add_writer(left, print)
    assert loop.remove_reader(left) is True
    assert loop.remove_reader(left) is False
    assert loop.remove_writer(left) is True
    assert loop.remove_writer(left) is False


@pytest.mark.parametrize("as_number", [False, True])
async def test_reader_with_arguments(loop, ends, as_number):
    left, right = ends
    where = left.fileno() if as_number else left
    future = loop.create_future()

    def readable(*args):
        loop.remove_reader(where)
        future.set_result((left.recv(100), args))

    loop.add_reader(where, readable, 1, "two", None)
    await settle()
    assert not future.done()
    right.send(b"hello")
    assert await future == (b"hello", (1, "two", None))


async def test_writer(loop, ends):
    left, right = ends
    future = loop.create_future()

    def writable(*args):
        loop.remove_writer(left)
        left.send(b"written")
        future.set_result(args)

    loop.add_writer(left, writable, "argument")
    assert await future == ("argument",)
    assert right.recv(100) == b"written"


async def test_readiness_is_level_triggered(loop, ends):
    left, right = ends
    right.send(b"abc")
    seen = []
    done = loop.create_future()

    def readable():
        seen.append(left.recv(1))
        if len(seen) == 3:
            loop.remove_reader(left)
            done.set_result(None)

    loop.add_reader(left, readable)
    await done
    assert seen == [b"a", b"b", b"c"]


async def test_a_reader_that_does_not_read_is_called_again(loop, ends):
    left, right = ends
    right.send(b"x")
    calls = 0
    done = loop.create_future()

    def readable():
        nonlocal calls
        calls += 1
        if calls == 5:
            loop.remove_reader(left)
            done.set_result(None)

    loop.add_reader(left, readable)
    await done
    assert left.recv(10) == b"x"


async def test_a_new_callback_replaces_the_old_one(loop, ends):
    left, right = ends
    seen = []
    loop.add_reader(left, seen.append, "old")
    loop.add_reader(left, seen.append, "new")
    right.send(b"x")
    while not seen:
        await asyncio.sleep(0)
    loop.remove_reader(left)
    assert set(seen) == {"new"}
    assert loop.remove_reader(left) is False


async def test_reader_and_writer_on_one_descriptor(loop, ends):
    left, right = ends
    seen = []
    loop.add_reader(left, lambda: (seen.append("read"), loop.remove_reader(left)))
    loop.add_writer(left, lambda: (seen.append("write"), loop.remove_writer(left)))
    await settle()
    assert seen == ["write"]
    right.send(b"x")
    await settle()
    assert seen == ["write", "read"]


async def test_removing_one_leaves_the_other(loop, ends):
    left, right = ends
    seen = []
    loop.add_writer(left, lambda: None)
    loop.add_reader(left, lambda: seen.append(left.recv(1)))
    loop.remove_writer(left)
    right.send(b"x")
    await settle()
    assert seen == [b"x"]
    loop.remove_reader(left)


async def test_after_removal_the_callback_is_not_called(loop, ends):
    left, right = ends
    seen = []
    loop.add_reader(left, seen.append, 1)
    right.send(b"x")
    loop.remove_reader(left)
    await settle()
    assert seen == []


async def test_removed_by_a_callback_of_the_same_turn(loop, ends):
    left, right = ends
    seen = []
    loop.add_reader(left, lambda: (seen.append("left"), loop.remove_reader(left), loop.remove_reader(right)))
    loop.add_reader(right, lambda: (seen.append("right"), loop.remove_reader(left), loop.remove_reader(right)))
    left.send(b"x")
    right.send(b"x")
    await settle()
    assert len(seen) == 1


async def test_the_blocking_mode_is_left_alone(loop):
    """uvloop#712: watching a terminal must not make it non-blocking for everybody else."""
    reading, writing = os.pipe()
    try:
        loop.add_reader(reading, lambda: None)
        loop.add_writer(writing, lambda: None)
        await settle()
        assert os.get_blocking(reading)
        assert os.get_blocking(writing)
        loop.remove_reader(reading)
        loop.remove_writer(writing)
        assert os.get_blocking(reading)
        assert os.get_blocking(writing)
    finally:
        os.close(reading)
        os.close(writing)


async def test_pipe(loop):
    reading, writing = os.pipe()
    try:
        future = loop.create_future()
        loop.add_reader(reading, lambda: future.done() or future.set_result(os.read(reading, 10)))
        os.write(writing, b"piped")
        assert await future == b"piped"
        ended = loop.create_future()
        loop.add_reader(reading, lambda: ended.done() or ended.set_result(os.read(reading, 10)))
        os.close(writing)
        writing = None
        assert await ended == b""
        loop.remove_reader(reading)
    finally:
        os.close(reading)
        if writing is not None:
            os.close(writing)


async def test_terminal(loop):
    try:
        main, terminal = os.openpty()
    except OSError as exc:
        pytest.skip(f"no terminals here: {exc}")
    try:
        future = loop.create_future()
        loop.add_reader(main, lambda: future.done() or future.set_result(os.read(main, 100)))
        os.write(terminal, b"typed")
        assert await future == b"typed"
        loop.remove_reader(main)
    finally:
        os.close(main)
        os.close(terminal)


async def test_a_write_to_a_pipe_without_a_reader_wakes_the_writer(loop):
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writing, bytes(65536))
        future = loop.create_future()
        loop.add_writer(writing, lambda: future.done() or future.set_result(None))
        await settle()
        assert not future.done()
        os.close(reading)
        reading = None
        await future
        loop.remove_writer(writing)
    finally:
        os.close(writing)
        if reading is not None:
            os.close(reading)


async def test_two_numbers_of_one_socket(loop, ends):
    left, right = ends
    with left.dup() as copy:
        seen = set()
        loop.add_reader(left, lambda: seen.add("left"))
        loop.add_reader(copy, lambda: seen.add("copy"))
        right.send(b"x")
        while seen != {"left", "copy"}:
            await asyncio.sleep(0)
        assert loop.remove_reader(copy) is True
        assert loop.remove_reader(left) is True


async def test_a_recycled_number_starts_afresh(loop):
    """uvloop#738: a number that comes back belongs to the new file, not to a dead one."""
    seen = []
    for turn in range(5):
        left, right = socket.socketpair()
        with left, right:
            number = left.fileno()
            loop.add_reader(left, seen.append, (turn, number))
            right.send(b"x")
            while not seen or seen[-1][0] != turn:
                await asyncio.sleep(0)
            assert seen[-1] == (turn, number)
            loop.remove_reader(left)
    assert {turn for turn, _ in seen} == set(range(5))


async def test_a_number_closed_behind_the_loops_back(loop):
    """A careless caller closes first and removes later; the number's next life must work."""
    left, right = socket.socketpair()
    number = left.fileno()
    loop.add_reader(number, print)
    left.close()
    right.close()
    assert loop.remove_reader(number) is True
    left, right = socket.socketpair()
    with left, right:
        future = loop.create_future()
        loop.add_reader(left, lambda: future.done() or future.set_result(left.recv(1)))
        right.send(b"y")
        assert await future == b"y"
        loop.remove_reader(left)


async def test_a_transports_descriptor_is_refused(loop, pair, kind):
    transport, _ = await pair(Recorder(), kind)
    sock = transport.get_extra_info("socket")
    for where in (sock, sock.fileno()):
        for change in (
            lambda where=where: loop.add_reader(where, print),
            lambda where=where: loop.add_writer(where, print),
            lambda where=where: loop.remove_reader(where),
            lambda where=where: loop.remove_writer(where),
        ):
            with pytest.raises(RuntimeError, match="is used by transport"):
                change()
    assert transport.is_reading()


async def test_wrong_arguments(loop, ends):
    left, _ = ends
    for call in (loop.add_reader, loop.add_writer):
        with pytest.raises(ValueError, match="Invalid file"):
            call("text", print)
        with pytest.raises(ValueError, match="Invalid file"):
            call(-1, print)
        with pytest.raises(TypeError):
            call(left)


async def test_a_regular_file_cannot_be_watched(loop, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with path.open("rb") as file, pytest.raises(PermissionError):
        loop.add_reader(file, print)


async def test_a_closed_descriptor_cannot_be_watched(loop):
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    with pytest.raises(OSError, match=r"Bad file descriptor"):
        loop.add_reader(reading, print)
    assert loop.remove_reader(reading) is False


async def test_an_error_in_a_reader_is_reported_and_the_reader_stays(loop, ends, errors):
    left, right = ends

    def readable():
        left.recv(1)
        raise LookupError("in the reader")

    loop.add_reader(left, readable)
    right.send(b"x")
    await settle()
    right.send(b"y")
    await settle()
    assert [type(context["exception"]) for context in errors] == [LookupError] * 2
    assert isinstance(errors[0]["handle"], asyncio.Handle)
    assert loop.remove_reader(left) is True
    errors.clear()


def test_keyboard_interrupt_in_a_reader(loop, ends):
    left, right = ends

    def readable():
        left.recv(1)
        raise KeyboardInterrupt

    loop.add_reader(left, readable)
    right.send(b"x")
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert loop.remove_reader(left) is True
    assert loop.run_until_complete(asyncio.sleep(0, "fine")) == "fine"


@pytest.mark.parametrize("debug", [False, True])
async def test_the_callback_is_let_go_at_removal(loop, ends, debug):
    loop.set_debug(debug)
    left, _ = ends

    class Callback:
        def __call__(self):
            pass

    callback = Callback()
    gone = weakref.ref(callback)
    loop.add_reader(left, callback)
    del callback
    assert gone() is not None
    loop.remove_reader(left)
    await settle()
    assert gone() is None


def test_a_closed_loop_refuses(loop, ends):
    left, _ = ends
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.add_reader(left, print)
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.add_writer(left, print)


def test_watched_before_the_run(loop, ends):
    left, right = ends
    seen = []
    loop.add_reader(left, lambda: (seen.append(left.recv(1)), loop.stop()))
    right.send(b"x")
    loop.run_forever()
    assert seen == [b"x"]
    right.send(b"y")
    loop.run_forever()
    assert seen == [b"x", b"y"]
    loop.remove_reader(left)
