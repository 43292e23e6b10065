"""Child processes: what Popen's keywords do, how an end is seen, what is left behind."""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from subprocess import DEVNULL, PIPE, STDOUT

import pytest
from helpers import (
    ON_ASYNCIO,
    PATIENCE,
    Waitable,
    beyond_asyncio,
    beyond_asyncio_before,
    new_loop,
    open_fds,
    within,
)


async def output_of(*command, **keywords):
    """What a command writes and how it ends."""
    proc = await asyncio.create_subprocess_exec(*command, stdout=PIPE, **keywords)
    out, _ = await within(proc.communicate())
    return out, proc.returncode


def python(source):
    return (sys.executable, "-S", "-c", source)


class Watcher(Waitable, asyncio.SubprocessProtocol):
    def __init__(self):
        super().__init__()
        self.output = {1: b"", 2: b""}
        self.lost_pipes = {}

    def connection_made(self, transport):
        self.note("made")

    def pipe_data_received(self, fd, data):
        self.output[fd] += data
        self.note(f"data {fd}")

    def pipe_connection_lost(self, fd, exc):
        self.lost_pipes[fd] = exc
        self.note(f"lost {fd}")

    def process_exited(self):
        self.note("exited")

    def connection_lost(self, exc):
        self.note("lost")


# -- the streams ------------------------------------------------------------------------------------


async def test_communicate(loop):
    proc = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE, stderr=PIPE)
    out, err = await within(proc.communicate(b"to and fro"))
    assert (out, err, proc.returncode) == (b"to and fro", b"", 0)


async def test_a_megabyte_each_way(loop):
    sent = os.urandom(1 << 20)
    proc = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    out, _ = await within(proc.communicate(sent))
    assert out == sent


async def test_shell(loop):
    proc = await asyncio.create_subprocess_shell("echo out; echo err >&2; exit 5", stdout=PIPE, stderr=PIPE)
    assert await within(proc.communicate()) == (b"out\n", b"err\n")
    assert proc.returncode == 5


async def test_stderr_joins_stdout(loop):
    out, _ = await output_of("sh", "-c", "echo a; echo b >&2", stderr=STDOUT)
    assert out == b"a\nb\n"


async def test_pipes_are_pipes_that_the_child_can_open_again(loop):
    out, _ = await output_of("sh", "-c", "stat -L -c %F /dev/stdin /dev/stdout; echo again > /dev/stdout", stdin=PIPE)
    assert out == b"fifo\nfifo\nagain\n"
    proc = await asyncio.create_subprocess_exec("sh", "-c", "cat < /dev/stdin", stdin=PIPE, stdout=PIPE)
    assert await within(proc.communicate(b"reopened")) == (b"reopened", None)


async def test_a_file_and_a_socket_as_streams(loop, tmp_path):
    with open(tmp_path / "in", "w+b") as given, open(tmp_path / "out", "w+b") as taken:
        given.write(b"from a file")
        given.seek(0)
        proc = await asyncio.create_subprocess_exec("cat", stdin=given, stdout=taken)
        assert await within(proc.wait()) == 0
        assert (tmp_path / "out").read_bytes() == b"from a file"


async def test_back_pressure_on_stdin(loop):
    proc = await asyncio.create_subprocess_exec(*python("import sys; sys.stdin.buffer.read()"), stdin=PIPE)
    proc.stdin.write(bytes(1 << 20))
    assert proc.stdin.transport.get_write_buffer_size() > 0
    await within(proc.stdin.drain())
    proc.stdin.close()
    assert await within(proc.wait()) == 0


async def test_a_child_that_does_not_read(loop):
    """Its stdin breaks; the write is dropped, drain() tells, and nothing is logged."""
    proc = await asyncio.create_subprocess_exec("true", stdin=PIPE)
    assert await within(proc.wait()) == 0
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        for _ in range(20):
            proc.stdin.write(b"x" * 100_000)
            await within(proc.stdin.drain())
    assert await within(proc.communicate(b"more")) == (None, None)


# -- the keywords of Popen ---------------------------------------------------------------------------


async def test_environment_and_directory(loop, tmp_path):
    out, _ = await output_of(
        "sh", "-c", "pwd; echo $NAME", cwd=tmp_path, env={"NAME": "value", "PATH": os.environ["PATH"]}
    )
    assert out.decode().split() == [str(tmp_path), "value"]


async def test_sessions_and_groups(loop):
    ids = python("import os; print(os.getpid(), os.getpgid(0), os.getsid(0))")
    out, _ = await output_of(*ids, start_new_session=True)
    pid, group, session = map(int, out.split())
    assert pid == group == session
    out, _ = await output_of(*ids, process_group=0)
    pid, group, session = map(int, out.split())
    assert pid == group and session == os.getsid(0)
    out, _ = await output_of(*ids)
    assert int(out.split()[1]) == os.getpgid(0)


async def test_umask(loop):
    out, _ = await output_of("sh", "-c", "umask", umask=0o027)
    assert out.strip() == b"0027"


async def test_descriptors_that_are_passed(loop):
    reading, writing = os.pipe()
    try:
        listed = python("import os; print(*sorted(os.listdir('/proc/self/fd')))")
        out, _ = await output_of(*listed, pass_fds=[writing])
        assert str(writing) in out.decode().split() and str(reading) not in out.decode().split()
        out, _ = await output_of(*listed)
        assert str(writing) not in out.decode().split()
        _, status = await output_of(*python(f"import os; os.write({writing}, b'hello')"), pass_fds=[writing])
        assert (status, os.read(reading, 100)) == (0, b"hello")
    finally:
        os.close(reading)
        os.close(writing)


async def test_signals_are_restored(loop):
    """What Python ignores a child does not, unless it is asked to."""
    bit = 1 << (signal.SIGXFSZ - 1)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        look = ("sh", "-c", "grep SigIgn /proc/self/status")
        out, _ = await output_of(*look)
        assert not int(out.split()[1], 16) & bit
        out, _ = await output_of(*look, restore_signals=False)
        assert int(out.split()[1], 16) & bit
    finally:
        signal.signal(signal.SIGXFSZ, before)


async def test_size_of_the_pipes(loop):
    proc = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE, pipesize=1 << 17)
    for stream, number in ((proc.stdin, 0), (proc._transport, 1)):
        pipe = proc._transport.get_pipe_transport(number).get_extra_info("pipe")
        assert fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) == 1 << 17
    await within(proc.communicate())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become someone else")
async def test_another_user(loop):
    who = ("sh", "-c", "id -u; id -g; id -G")
    out, _ = await output_of(*who, user=65534, group=65533, extra_groups=[65533, 65532], cwd="/")
    assert out.split() == [b"65534", b"65533", b"65533", b"65532"]


async def test_preexec_fn_runs_in_the_child(loop):
    out, _ = await output_of(
        "sh", "-c", "echo $NAME", preexec_fn=lambda: os.write(1, b"before "), env={"NAME": "after"}
    )
    assert out == b"before after\n"


async def test_preexec_fn_that_raises(loop):
    before = open_fds()

    def broken():
        raise LookupError("in the child")

    with pytest.raises(subprocess.SubprocessError):
        await asyncio.create_subprocess_exec("true", stdout=PIPE, preexec_fn=broken)
    assert open_fds() == before


async def test_at_fork_hooks_run_only_for_python_code(loop):
    calls = []
    active = [True]
    os.register_at_fork(before=lambda: active and calls.append("before"))
    await output_of("true", stdin=PIPE)
    assert calls == []
    await output_of("true", preexec_fn=lambda: None)
    assert calls == ["before"]
    active.clear()


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"universal_newlines": True}, "universal_newlines must be False"),
        ({"shell": True}, "shell must be False"),
        ({"bufsize": 1}, "bufsize must be 0"),
        ({"text": True}, "text must be False"),
        ({"encoding": "utf8"}, "encoding must be None"),
        ({"errors": "strict"}, "errors must be None"),
    ],
)
async def test_refused_keywords(loop, keywords, text):
    with pytest.raises(ValueError, match=text):
        await loop.subprocess_exec(asyncio.SubprocessProtocol, "true", **keywords)


async def test_unknown_keyword(loop):
    before = open_fds()
    with pytest.raises(TypeError, match="no_such_keyword"):
        await asyncio.create_subprocess_exec("true", stdout=PIPE, no_such_keyword=1)
    assert open_fds() == before


# -- the end of a child ------------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -15 $$", -15)])
async def test_exit_status(loop, script, status):
    proc = await asyncio.create_subprocess_exec("sh", "-c", script)
    assert await within(proc.wait()) == status
    assert proc.returncode == status
    assert await proc.wait() == status


async def test_order_of_events(loop):
    protocol = Watcher()
    transport, _ = await loop.subprocess_exec(lambda: protocol, "sh", "-c", "echo out; echo err >&2", stdin=PIPE)
    await protocol.seen("lost")
    events = protocol.events
    assert events[0] == "made" and events[-1] == "lost"
    assert events.count("exited") == events.count("lost") == 1
    assert events.index("data 1") < events.index("lost 1") and events.index("data 2") < events.index("lost 2")
    assert protocol.output == {1: b"out\n", 2: b"err\n"}
    assert protocol.lost_pipes[1] is None and protocol.lost_pipes[2] is None
    transport.close()


@beyond_asyncio("D36: wait() ends with the process, whoever has its pipes")
async def test_the_end_does_not_wait_for_the_pipes(loop):
    protocol = Watcher()
    transport, _ = await loop.subprocess_exec(
        lambda: protocol, "sh", "-c", "sleep 60 & echo $!; exit 3", stdin=DEVNULL, stderr=DEVNULL
    )
    try:
        assert await within(transport._wait()) == 3
        await protocol.seen("exited")
        await protocol.seen("data 1")
        assert "lost" not in protocol.events and "lost 1" not in protocol.events
    finally:
        os.kill(int(protocol.output[1]), signal.SIGKILL)
    await protocol.seen("lost")
    transport.close()


async def test_output_comes_before_the_exit(loop):
    protocol = Watcher()
    transport, _ = await loop.subprocess_exec(lambda: protocol, "echo", "some output", stdin=DEVNULL, stderr=DEVNULL)
    await protocol.seen("exited")
    assert protocol.output[1] == b"some output\n"
    await protocol.seen("lost")
    transport.close()


async def test_signals(loop):
    for send, status in (("terminate", -15), ("kill", -9)):
        proc = await asyncio.create_subprocess_exec("sleep", "60")
        getattr(proc, send)()
        assert await within(proc.wait()) == status
        with pytest.raises(ProcessLookupError):
            getattr(proc, send)()
    proc = await asyncio.create_subprocess_exec("sleep", "60")
    proc.send_signal(signal.SIGUSR1)
    assert await within(proc.wait()) == -signal.SIGUSR1


async def test_close_kills(loop):
    protocol = Watcher()
    transport, _ = await loop.subprocess_exec(lambda: protocol, "sleep", "60", stdin=DEVNULL)
    transport.close()
    transport.close()
    assert transport.is_closing()
    await protocol.seen("lost")
    assert transport.get_returncode() == -9


async def test_cancelled_waits(loop):
    proc = await asyncio.create_subprocess_exec("sleep", "60")
    waits = [loop.create_task(proc.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waits[0].cancel()
    proc.kill()
    assert await within(asyncio.gather(*waits[1:])) == [-9, -9]
    with pytest.raises(asyncio.CancelledError):
        await waits[0]


async def test_status_that_the_application_took(loop):
    """It waits for its children by itself: the loop must not hang, and Popen's answer counts."""
    proc = await asyncio.create_subprocess_exec("sh", "-c", "exit 4")
    popen = proc._transport.get_extra_info("subprocess")
    assert popen.wait(PATIENCE) == 4
    assert await within(proc.wait()) == (255 if ON_ASYNCIO else 4)


@pytest.mark.parametrize("by_thread", [False, True])
async def test_status_that_someone_else_took(loop, monkeypatch, caplog, by_thread):
    if by_thread:
        if ON_ASYNCIO:
            pytest.skip("asyncio decides about pidfd once")
        without_pidfd(monkeypatch)
    proc = await asyncio.create_subprocess_exec("sh", "-c", "read line; exit 4", stdin=PIPE)
    taken = threading.Thread(target=os.waitpid, args=(proc.pid, 0))
    taken.start()
    # The loop does not run, so it cannot be the first.
    proc._transport.get_pipe_transport(0).get_extra_info("pipe").write(b"\n")
    taken.join(PATIENCE)
    assert await within(proc.wait()) == 255
    assert "exit status already read" in caplog.text


def without_pidfd(monkeypatch):
    def refused(pid, flags=0):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused)


@beyond_asyncio("asyncio decides about pidfd once")
async def test_without_pidfd_a_thread_waits(loop, monkeypatch):
    without_pidfd(monkeypatch)
    procs = [await asyncio.create_subprocess_exec("sh", "-c", f"exit {n}") for n in range(5)]
    assert await within(asyncio.gather(*(proc.wait() for proc in procs))) == [0, 1, 2, 3, 4]
    proc = await asyncio.create_subprocess_exec("sleep", "60")
    proc.kill()
    assert await within(proc.wait()) == -9


# -- other children and SIGCHLD -----------------------------------------------------------------------


async def test_foreign_children_are_left_alone(loop):
    foreign = subprocess.Popen(["sh", "-c", "exit 9"])
    for _ in range(3):
        await output_of("true")
    assert foreign.wait(PATIENCE) == 9


def test_sigchld_is_the_applications(loop):
    seen = []
    before = signal.getsignal(signal.SIGCHLD)

    async def main():
        loop.add_signal_handler(signal.SIGCHLD, seen.append, "chld")
        with subprocess.Popen(["true"]):
            pass
        proc = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
        assert await within(proc.wait()) == 7
        while not seen:
            await asyncio.sleep(0)
        loop.remove_signal_handler(signal.SIGCHLD)

    loop.run_until_complete(main())
    assert signal.getsignal(signal.SIGCHLD) == before


@beyond_asyncio_before(3, 12, "a child watcher belongs to the main thread's loop")
def test_many_threads_spawn_at_once():
    results = []

    def life(number):
        loop = new_loop()
        try:

            async def main():
                procs = [await asyncio.create_subprocess_exec("sh", "-c", f"exit {number}") for _ in range(5)]
                return [await within(proc.wait()) for proc in procs]

            results.append((number, loop.run_until_complete(main())))
        finally:
            loop.close()

    threads = [threading.Thread(target=life, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(number, [number] * 5) for number in range(8)]


# -- failures, and what is left ------------------------------------------------------------------------


async def test_a_spawn_that_fails(loop, tmp_path):
    before = open_fds()
    for command in ("/no/such/program", str(tmp_path)):
        with pytest.raises((FileNotFoundError, PermissionError)):
            await asyncio.create_subprocess_exec(command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    with pytest.raises(FileNotFoundError):
        await asyncio.create_subprocess_exec("true", stdout=PIPE, cwd="/no/such/directory")
    assert open_fds() == before


@beyond_asyncio("the transport of a cancelled spawn hangs or leaks in some versions")
async def test_a_spawn_that_is_cancelled(loop):
    before = open_fds()
    spawning = loop.create_task(asyncio.create_subprocess_exec("sleep", "60", stdin=PIPE, stdout=PIPE))
    await asyncio.sleep(0)
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(spawning)
    await asyncio.sleep(0)
    assert open_fds() == before


@beyond_asyncio("it waits for ever")
async def test_pipes_that_cannot_be_connected(loop, monkeypatch):
    before = open_fds()
    monkeypatch.setattr(type(loop), "_make_read_pipe_transport", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await within(asyncio.create_subprocess_exec("sleep", "60", stdin=PIPE, stdout=PIPE))
    await asyncio.sleep(0)
    assert open_fds() == before


@beyond_asyncio("a child that cannot be watched is left running")
async def test_a_child_that_cannot_be_watched(loop, monkeypatch):
    before = open_fds()

    def refused(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(loop), "_add_reader", refused)
    with pytest.raises(OSError, match="No space left"):
        await asyncio.create_subprocess_exec("sleep", "60", stdin=PIPE, stdout=PIPE)
    monkeypatch.undo()
    assert open_fds() == before


@beyond_asyncio("it leaves the pidfd open")
def test_a_loop_closed_before_its_child_ends(recwarn):
    before = open_fds()
    loop = new_loop()
    transport, _ = loop.run_until_complete(loop.subprocess_exec(Watcher, "sleep", "60"))
    popen = transport.get_extra_info("subprocess")
    loop.close()
    transport.close()
    popen.wait(PATIENCE)
    del transport, loop
    assert open_fds() == before


# -- the transport ------------------------------------------------------------------------------------


async def test_extra_info_and_pipes(loop):
    protocol = Watcher()
    transport, answer = await loop.subprocess_exec(lambda: protocol, "cat")
    assert answer is protocol and transport.get_protocol() is protocol
    assert isinstance(transport, asyncio.SubprocessTransport)
    popen = transport.get_extra_info("subprocess")
    assert isinstance(popen, subprocess.Popen) and popen.pid == transport.get_pid()
    assert transport.get_returncode() is None
    for number, file in enumerate((popen.stdin, popen.stdout, popen.stderr)):
        pipe = transport.get_pipe_transport(number)
        assert pipe.get_extra_info("pipe") is file
    assert transport.get_pipe_transport(3) is None
    stdin = transport.get_pipe_transport(0)
    stdin.write(b"echo")
    await protocol.seen("data 1")
    stdin.close()
    await protocol.seen("lost")
    assert protocol.output[1] == b"echo"
    transport.close()


async def test_repr(loop):
    protocol = Watcher()
    transport, _ = await loop.subprocess_exec(lambda: protocol, "cat", stderr=DEVNULL)
    assert f"pid={transport.get_pid()} running" in repr(transport)
    transport.get_pipe_transport(0).close()
    await protocol.seen("lost")
    assert "returncode=0" in repr(transport)
    transport.close()
