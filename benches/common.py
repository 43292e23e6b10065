"""What the drivers share: child processes that never outlive them, and what those cost.

Every child is started in a ``with`` block that ends it, and asks the kernel to kill it should
this process die first. Linux only, like the counters in ``/proc`` that are read here.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import loops

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

#: The name under which the bare epoll server takes part.
FLOOR = "floor"

#: Options that say nothing about how the figures came about.
NOT_SETTINGS = frozenset({"name", "loops", "child"})

_READY_SECONDS = 30.0
_STOP_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class BenchError(Exception):
    """A benchmark cannot go on; the message says why."""


# --- Programs ---------------------------------------------------------------------------------


def run_main(main: Callable[[], None]) -> NoReturn:
    """Run a driver: clean up and leave with a short message on failure, Ctrl-C or SIGTERM."""

    def terminate(signum: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, terminate)
    try:
        main()
    except (BenchError, loops.UnknownLoop) as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(0)


def argument_parser(description: str | None, results: str) -> argparse.ArgumentParser:
    """Return a parser of what every driver takes: the loops, and where the results go."""
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("loops", metavar="LOOP", nargs="*", help="a loop's name or MODULE:FACTORY; default: all")
    add("--name", type=file_name, default=results, help="of results/NAME.json; default %(default)s")
    return parser


def load_binary() -> str:
    """Return the path of ``pelton-load``: $PELTON_LOAD, or the release build."""
    named = os.environ.get("PELTON_LOAD")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(named) if named else target / "release" / "pelton-load"
    if not os.access(path, os.X_OK):
        raise BenchError(
            f"no load generator at {path}: run `cargo build --release -p pelton-load`, "
            "or name one in PELTON_LOAD"
        )
    return str(path)


def choose_loops(named: Sequence[str], default: Sequence[str]) -> list[str]:
    """Return the loops to compare: those named, which must exist, or the default that do."""
    if named:
        for name in named:
            if name != FLOOR:
                loops.check(name)
        return list(dict.fromkeys(named))
    chosen = []
    for name in default:
        try:
            if name != FLOOR:
                loops.check(name)
        except loops.UnknownLoop as missing:
            print(f"leaving out {missing}", file=sys.stderr)
        else:
            chosen.append(name)
    return chosen


def raise_descriptor_limit(needed: int) -> None:
    """Let this process and its children open as many descriptors as ``needed``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BenchError(f"{needed} descriptors are needed, and the limit here is {hard}")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def cores() -> tuple[int, int]:
    """Return the core for the server and the core for the load."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        print("one core only: the load will disturb the server", file=sys.stderr)
    return available[0], available[-1]


def abba(names: Sequence[str], rounds: int) -> Iterator[list[str]]:
    """Yield the order of each round, every second one reversed, so that drift cancels out."""
    for number in range(rounds):
        yield list(names) if number % 2 == 0 else list(reversed(names))


# --- Processes --------------------------------------------------------------------------------


@contextlib.contextmanager
def process(
    command: Sequence[str], *, core: int | None = None, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a child with its output on a pipe; it is gone when the block ends."""

    def before_exec() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if core is not None:
            os.sched_setaffinity(0, {core})

    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        preexec_fn=before_exec,
    )
    try:
        yield child
    finally:
        stop(child)


def stop(child: subprocess.Popen[str]) -> None:
    """End a child: politely at first, for certain in the end."""
    try:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()


@contextlib.contextmanager
def server(
    command: Sequence[str], *, core: int | None = None, env: Mapping[str, str] | None = None
) -> Iterator[tuple[int, int]]:
    """Start a server that prints ``ready PORT``; the block gets its process id and port."""
    with process(command, core=core, env=env) as child:
        line = read_line(child, _READY_SECONDS)
        word, _, port = line.partition(" ")
        if word != "ready" or not port.strip().isdigit():
            raise BenchError(f"the server did not start: {' '.join(command)}")
        yield child.pid, int(port)


def read_line(child: subprocess.Popen[str], timeout: float) -> str:
    """Return the next line of a child's output; empty if it ended or the time is over."""
    assert child.stdout is not None
    readable, _, _ = select.select([child.stdout], [], [], timeout)
    return child.stdout.readline() if readable else ""


def server_command(
    loop: str, kind: str, port: int = 0, *, certificates: Path | None = None
) -> list[str]:
    """Return the command of the echo server on a loop, or of the floor; TLS with certificates."""
    if loop == FLOOR:
        command = [load_binary(), "floor", str(port)]
    else:
        command = [sys.executable, str(HERE / "server.py"), loop, kind, str(port)]
    if certificates is not None:
        command += ["--certificates", str(certificates)]
    return command


def load_command(what: str, port: int, **options: object) -> list[str]:
    """Return a command of the load generator; keyword arguments become its options, if not None."""
    command = [load_binary(), what, "127.0.0.1", str(port)]
    for name, value in options.items():
        if value is not None:
            command += [f"--{name}", str(value)]
    return command


def run_load(what: str, port: int, *, core: int | None, **options: object) -> dict[str, float]:
    """Run the load to its end and return the figures that it printed."""
    with process(load_command(what, port, **options), core=core) as child:
        return read_figures(child, float(str(options.get("seconds", 3))) + 60)


def read_figures(child: subprocess.Popen[str], timeout: float) -> dict[str, float]:
    """Return the figures that a load generator prints when its run is over."""
    line = read_line(child, timeout)
    if not line:
        raise BenchError(f"the load gave no result: {child.args!r}")
    figures: dict[str, float] = json.loads(line)
    if not figures["messages"]:
        raise BenchError(f"not one message came back: {child.args!r}")
    return figures


# --- Costs ------------------------------------------------------------------------------------


class CpuClock:
    """The processor time that a process has used since the clock was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._threads = self._by_thread()
        self._whole = self._by_process()

    def nanoseconds(self) -> int:
        """Return the time used, user and system, over all threads.

        The scheduler's count per thread is exact but goes away with its thread; if one has ended,
        the tick count of the whole process stands in.
        """
        now = self._by_thread()
        if self._threads.keys() <= now.keys():
            return sum(now.values()) - sum(self._threads.values())
        return self._by_process() - self._whole

    def _by_thread(self) -> dict[str, int]:
        times = {}
        for thread in Path(f"/proc/{self._pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                times[thread.name] = int((thread / "schedstat").read_text().split()[0])
        return times

    def _by_process(self) -> int:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def rss_kib(pid: int) -> int:
    """Return the resident memory of a process, counted page by page."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1])
    raise BenchError(f"process {pid} has no resident memory to read")


# --- Results ----------------------------------------------------------------------------------


def machine(names: Iterable[str]) -> dict[str, object]:
    """Describe what the figures were measured on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": f"{os.uname().sysname} {os.uname().release}",
        "libc": _libc_version(),
        "python": sys.version.split(" (")[0],
        "loops": {name: loops.versions(name) for name in names if name != FLOOR},
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": _commit(),
    }


def write_results(options: argparse.Namespace, names: Iterable[str], **figures: object) -> None:
    """Write results/NAME.json: the machine, the options, the figures.

    A failure halfway leaves the file of the last run alone.
    """
    settings = {key: value for key, value in vars(options).items() if key not in NOT_SETTINGS}
    results = {"machine": machine(names), "settings": settings, **figures}
    name = options.name
    path = HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".json.new")
    draft.write_text(json.dumps(results, indent=1) + "\n")
    draft.replace(path)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    print(f"written: {shown}")


def median_by_key(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over rows that have the same ones."""
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: the first column to the left, figures to the right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for number, line in enumerate(lines):
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))
    sys.stdout.flush()


def positive(text: str) -> int:
    """Parse a whole number above zero, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return value


def byte_sizes(text: str) -> list[int]:
    """Parse sizes with commas between them, for argparse."""
    return [positive(size) for size in text.split(",")]


def duration(text: str) -> float:
    """Parse a number of seconds that a benchmark can last, for argparse."""
    value = float(text)
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 86400 seconds")
    return value


def file_name(text: str) -> str:
    """Parse the NAME of results/NAME.json, for argparse."""
    if not text.replace("-", "").replace("_", "").isalnum():
        raise argparse.ArgumentTypeError(f"{text!r} is no plain file name")
    return text


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def _libc_version() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (OSError, ValueError):
        return "unknown"


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    described = subprocess.run(
        [git, "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"
