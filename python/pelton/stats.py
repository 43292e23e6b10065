"""What a loop has done and has before it: `loop.stats()`, and the same as Prometheus text.

    stats = asyncio.get_running_loop().stats()
    print(f"{stats.busy:.0%} busy, {stats.ready} callbacks wait")

Counters run from the loop's beginning; rates and shares of an interval are differences of two
answers. Nothing is kept for it that a loop would not have anyway, beside a handful of counters.
"""

from dataclasses import dataclass, fields
from typing import Any

__all__ = ("CallbackTimes", "LoopStats", "prometheus")


@dataclass(frozen=True, slots=True)
class CallbackTimes:
    """How long callbacks took, since `loop.measure_callbacks(True)`."""

    #: The upper bounds of the buckets, in seconds, ascending.
    bounds: tuple[float, ...]
    #: How many callbacks fell into each bucket; the last of them has no bound.
    counts: tuple[int, ...]
    #: All of them together, in seconds.
    seconds: float


@dataclass(frozen=True, slots=True)
class LoopStats:
    """One loop at one moment. Times are in seconds of the monotonic clock."""

    #: Time spent in `run_forever` and the like.
    running_seconds: float
    #: The part of it in which the loop slept, having nothing to do.
    idle_seconds: float
    #: Turns: one poll each.
    turns: int
    #: Callbacks run, of handles, timers, descriptors and protocols.
    callbacks: int
    #: Callbacks that are ready to run.
    ready: int
    #: Timers that are set and not cancelled.
    timers: int
    #: Stream transports that are open, TLS or not.
    streams: int
    #: Datagram endpoints.
    datagrams: int
    #: Listening sockets.
    listeners: int
    read_pipes: int
    write_pipes: int
    #: Callbacks of `add_reader` and `add_writer`, the loop's own one for signals among them.
    watchers: int
    #: Bytes that stream and pipe transports have read, and handed to the kernel. A TLS
    #: connection's are counted as they are on the wire; sendfile's are not counted.
    bytes_received: int
    bytes_sent: int
    #: TLS handshakes that have succeeded.
    tls_handshakes: int
    #: None unless `loop.measure_callbacks(True)` was called.
    callback_times: CallbackTimes | None
    #: Child processes that have not ended.
    processes: int
    #: Name look-ups that wait for an answer or for a thread.
    dns_in_flight: int

    @property
    def busy(self) -> float:
        """The share of its running time in which the loop did not sleep, from 0 to 1."""
        if self.running_seconds <= 0:
            return 0.0
        return min(1.0, max(0.0, 1 - self.idle_seconds / self.running_seconds))


def collect(loop: Any) -> LoopStats:
    """The answer of `loop.stats()`."""
    *counters, times = loop._stats()
    times = None if times is None else CallbackTimes(*times)
    values: Any = (*counters, times, len(loop._children), loop._resolver.in_flight())
    return LoopStats(*values)


# Those that only grow, and what they are called by Prometheus' rules of naming.
_COUNTERS = {
    "running_seconds": "running_seconds_total",
    "idle_seconds": "idle_seconds_total",
    "turns": "turns_total",
    "callbacks": "callbacks_total",
    "bytes_received": "received_bytes_total",
    "bytes_sent": "sent_bytes_total",
    "tls_handshakes": "tls_handshakes_total",
}


def prometheus(stats: LoopStats, prefix: str = "pelton_loop", **labels: str) -> str:
    """`stats` in Prometheus' text format, version 0.0.4; `labels` are put to every sample.

    Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/
    """
    lines: list[str] = []
    for field in fields(stats):
        value = getattr(stats, field.name)
        if isinstance(value, int | float):
            kind = "counter" if field.name in _COUNTERS else "gauge"
            name = f"{prefix}_{_COUNTERS.get(field.name, field.name)}"
            lines += [f"# TYPE {name} {kind}", f"{name}{_labels(labels)} {value}"]
    if stats.callback_times is not None:
        lines += _histogram(stats.callback_times, f"{prefix}_callback_seconds", labels)
    return "\n".join(lines) + "\n"


def _histogram(times: CallbackTimes, name: str, labels: dict[str, str]) -> list[str]:
    lines, below = [f"# TYPE {name} histogram"], 0
    bounds = [f"{bound:g}" for bound in times.bounds] + ["+Inf"]
    for bound, count in zip(bounds, times.counts, strict=True):
        below += count  # a bucket of Prometheus holds all those below it
        lines.append(f"{name}_bucket{_labels({**labels, 'le': bound})} {below}")
    lines.append(f"{name}_sum{_labels(labels)} {times.seconds}")
    lines.append(f"{name}_count{_labels(labels)} {below}")
    return lines


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
