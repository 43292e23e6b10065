"""A PostgreSQL server of one's own: a private port, a throw-away certificate, TLS 1.3.

The binaries are Debian's (`apt install postgresql`) or whatever `initdb` the PATH has. PostgreSQL
refuses to run as root; then it runs as the user `postgres`, whom Debian's package made.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import certificate

USER = "pelton"
_START_SECONDS = 30.0


class NoPostgres(Exception):
    """There is no server here that could be started; the message says why."""


class Server(NamedTuple):
    """A running server: its port on 127.0.0.1, and the folder with its certificate."""

    port: int
    certificates: Path


def binaries() -> Path:
    """Return the folder of ``initdb`` and ``postgres``, the newest if there are several."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = [
        path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()
    ]
    if not versions:
        raise NoPostgres("PostgreSQL is not installed (Debian: apt install postgresql)")
    return max(versions, key=lambda path: float(path.parent.name))


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Start a server, wait until it answers, and end it when the block ends."""
    programs = binaries()
    person: Mapping[str, Any] = {}
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            raise NoPostgres("PostgreSQL refuses root, and there is no user `postgres`") from None
        person = {"user": "postgres", "group": "postgres", "extra_groups": ()}
    with (
        certificate.folder() as certificates,
        tempfile.TemporaryDirectory(prefix="pelton-pg-") as name,
    ):
        home = Path(name)
        for file in (certificate.CHAIN, certificate.KEY):
            shutil.copy(certificates / file, home / file)
        if person:
            for path in (home, *home.iterdir()):
                shutil.chown(path, person["user"], person["group"])
        port = _free_port()
        initdb = [programs / "initdb", "-D", home / "data", "-A", "trust", "-U", USER]
        _run([*initdb, "-E", "UTF8", "--locale=C", "--no-sync"], home, person)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "ssl": "on",
            "ssl_cert_file": home / certificate.CHAIN,
            "ssl_key_file": home / certificate.KEY,
            "ssl_min_protocol_version": "TLSv1.3",
            "fsync": "off",
        }
        command = [programs / "postgres", "-D", home / "data"]
        for key, value in settings.items():
            command += ["-c", f"{key}={value}"]
        with _process(command, home, person) as process:
            _wait(process, port, home / "log")
            yield Server(port, certificates)


def _run(command: list[object], home: Path, person: Mapping[str, Any]) -> None:
    result = subprocess.run(
        [str(word) for word in command],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        **person,
    )
    if result.returncode:
        raise NoPostgres(f"{command[0]} failed: {result.stderr.strip()}")


@contextlib.contextmanager
def _process(
    command: list[object], home: Path, person: Mapping[str, Any]
) -> Iterator[subprocess.Popen[bytes]]:
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **person,
        )
    try:
        yield process
    finally:
        process.send_signal(2)  # SIGINT: a fast shutdown, which does not wait for clients
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if b"ready to accept connections" in log.read_bytes():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
                return
        time.sleep(0.05)
    raise NoPostgres(f"the server did not start: {log.read_text(errors='replace').strip()}")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
