"""Child processes: asyncio's transport, `subprocess.Popen`, and a pidfd in the loop's poll.

`Popen` spawns: it takes every keyword that the running Python has, runs no Python code between
fork and exec unless `preexec_fn` is given, and may be used by many threads at once. A child's end
is seen by its pidfd, so that `SIGCHLD` stays the application's and only children that were
started here are ever reaped. Everything happens once per child; nothing of it is native.
"""

import contextlib
import os
import subprocess
import threading
from asyncio import base_subprocess
from asyncio.log import logger
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from .loop import Loop

    class Popen(subprocess.Popen[bytes]):
        """The standard class with the one private name used here."""

        _waitpid_lock: threading.Lock

    class _BaseSubprocessTransport(asyncio.SubprocessTransport):
        """asyncio's class with the private names used here, which typeshed leaves out."""

        _closed: bool
        _loop: Loop
        _proc: Popen | None
        _protocol: asyncio.SubprocessProtocol
        _pipes: dict[int, Any]
        _pending_calls: Any
        _exit_waiters: list[asyncio.Future[int]] | None

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def _check_proc(self) -> None: ...
        def _process_exited(self, returncode: int) -> None: ...
        async def _wait(self) -> int: ...
else:
    _BaseSubprocessTransport = base_subprocess.BaseSubprocessTransport
    Popen = subprocess.Popen

_StdinProtocol: Any = base_subprocess.WriteSubprocessPipeProto
_OutputProtocol: Any = base_subprocess.ReadSubprocessPipeProto

# What asyncio reports for a child whose status someone else has taken.
UNKNOWN_STATUS = 255


class Watch:
    """Calls `ended` once in the loop when a child has ended, and takes its exit status.

    The loop polls a pidfd; where the kernel, a filter of system calls or the limit of descriptors
    allows none, a thread waits instead. Made and used in the loop's thread.
    """

    def __init__(self, loop: "Loop", proc: Popen, ended: Callable[[int], None]) -> None:
        self._loop = loop
        self._proc = proc
        self._ended = ended
        try:
            self._pidfd = os.pidfd_open(proc.pid)
        except (AttributeError, OSError):
            self._pidfd = -1
            threading.Thread(
                target=self._wait, name=f"pelton-child-{proc.pid}", daemon=True
            ).start()
        else:
            try:
                loop._add_reader(self._pidfd, self._on_end)
            except BaseException:
                self._close_pidfd()
                raise
        loop._children.add(self)

    def forget(self) -> None:
        """The loop is being closed: no more calls. The child stays `Popen`'s to look after."""
        self._close_pidfd()

    def _wait(self) -> None:
        """In a thread: sleep until the child has ended, and leave its status to the loop."""
        with contextlib.suppress(ChildProcessError):  # someone else took it
            os.waitid(os.P_PID, self._proc.pid, os.WEXITED | os.WNOWAIT)
        try:
            self._loop.call_soon_threadsafe(self._on_end)
        except RuntimeError:
            logger.warning("Loop %r that handles pid %r is closed", self._loop, self._proc.pid)

    def _on_end(self) -> None:
        self._loop._children.discard(self)
        status = self._reap()
        if self._pidfd >= 0:
            self._loop._remove_reader(self._pidfd)
            self._close_pidfd()
        # One turn later: what the child wrote before it ended is in its pipes and comes first.
        self._loop.call_soon(self._ended, status)

    def _reap(self) -> int:
        proc = self._proc
        # Popen.poll() takes the status too, in whichever thread; it keeps it in the object.
        with proc._waitpid_lock:
            if proc.returncode is None:
                proc.returncode = self._take_status()
            return proc.returncode

    def _take_status(self) -> int:
        kind, number = (os.P_PIDFD, self._pidfd) if self._pidfd >= 0 else (os.P_PID, self._proc.pid)
        try:
            result = os.waitid(kind, number, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            result = None
        if result is None:
            # The application waits for every child itself, or has told the kernel to.
            logger.warning(
                "child process pid %d exit status already read:  will report returncode 255",
                self._proc.pid,
            )
            return UNKNOWN_STATUS
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def _close_pidfd(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


class ProcessTransport(_BaseSubprocessTransport):
    """asyncio's transport of a child process, where waiting depends on the exit alone."""

    def _start(
        self,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        **kwargs: Any,
    ) -> None:
        proc = Popen(
            args,
            shell=shell,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            universal_newlines=False,
            bufsize=bufsize,
            **kwargs,
        )
        try:
            Watch(self._loop, proc, self._process_exited)
        except BaseException:
            with proc:  # closes the pipes and waits
                proc.kill()
            raise
        self._proc = proc

    async def _connect_pipes(self, waiter: "asyncio.Future[None]") -> None:
        """One step without an await, so that no cancellation finds half of the pipes connected."""
        loop, proc = self._loop, self._proc
        assert proc is not None
        try:
            if proc.stdin is not None:
                writer = _StdinProtocol(self, 0)
                writer.pipe = loop._make_write_pipe_transport(proc.stdin, writer)
                self._pipes[0] = writer
            for number, file in ((1, proc.stdout), (2, proc.stderr)):
                if file is not None:
                    reader = _OutputProtocol(self, number)
                    reader.pipe = loop._make_read_pipe_transport(file, reader)
                    self._pipes[number] = reader
            loop.call_soon(self._protocol.connection_made, self)
            for callback, data in self._pending_calls:
                loop.call_soon(callback, *data)
            self._pending_calls = None
            self._pipes_connected = True  # which newer versions of asyncio ask
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            if not waiter.cancelled():
                waiter.set_exception(exc)
        else:
            if not waiter.cancelled():
                waiter.set_result(None)

    async def abandon(self) -> None:
        """Kill a child whose maker was cancelled or failed, and give everything back."""
        proc = self._proc
        self.close()
        await self._wait()
        if proc is not None:
            for number, file in enumerate((proc.stdin, proc.stdout, proc.stderr)):
                if file is not None and self._pipes.get(number) is None:
                    file.close()

    def _process_exited(self, returncode: int) -> None:
        super()._process_exited(returncode)
        # asyncio before 3.14 wakes these when every pipe has ended too, and a grandchild may keep
        # one open. Newer ones have woken them here and leave none.
        waiters = self._exit_waiters
        if waiters:
            self._exit_waiters = []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(returncode)

    def close(self) -> None:
        """Close the pipes and kill the child, if it has not ended."""
        if not self._closed:
            # asyncio leaves them open where the loop is closed; these need no loop.
            for protocol in self._pipes.values():
                if protocol is not None:
                    protocol.pipe.close()
        super().close()

    def send_signal(self, signal: int) -> None:
        """Send a signal; one to a child that has ended goes nowhere, whoever has its number now."""
        self._check_proc()
        assert self._proc is not None
        self._proc.send_signal(signal)
