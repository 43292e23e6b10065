"""Serve the example application with uvicorn on pelton, until Ctrl-C. `make run` starts this.

HOST and PORT come from the environment; when the port is taken, a free one is used instead.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import uvicorn

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket at the address, or at a free port of the same host."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        print(f"port {port} of {host} cannot be had ({why}); taking a free one")
        return socket.create_server((host, 0), family=family, backlog=2048)


@contextlib.contextmanager
def own_terminal() -> Iterator[None]:
    """Let Ctrl-C reach this process alone: make would call it a failure of the target.

    This process becomes the terminal's foreground group for as long as it serves. It cannot be
    suspended meanwhile, because nobody would be there to resume it.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # no terminal, nothing to take
        yield
        return
    before = os.getpgrp()
    try:
        if os.tcgetpgrp(terminal) != before or before == os.getpid():
            yield  # in the background, or started by a shell: it has a group of its own
            return
        for number in (signal.SIGTTOU, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)
        os.setpgid(0, 0)
        os.tcsetpgrp(terminal, os.getpgrp())
        try:
            yield
        finally:
            os.tcsetpgrp(terminal, before)
    finally:
        os.close(terminal)


def main() -> None:
    host, port = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "8000"))
    sys.path.insert(0, str(EXAMPLES))
    # uvicorn shuts down on both signals, and raises them again when it has.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config = uvicorn.Config(
        "asgi_app:app",
        loop="pelton:new_event_loop",
        http="httptools",
        lifespan="off",
        log_level="warning",
    )
    with own_terminal(), listen(host, port) as sock:
        host, port = sock.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"serving on http://{shown}:{port}/ with pelton; Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[sock])
    print("ended")


if __name__ == "__main__":
    main()
