"""Draw the echo comparison: docs/echo.svg from results/echo.json.

A bar is the server's CPU time per message relative to the floor of the same round. The picture
carries its own background and colours for light and dark, and the machine that it is true of.
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import common
from server import KINDS

WIDTH = 820
MARGIN = 28
LABELS = 150  # between the margin and the bars: the loops' names
VALUES = 130  # between the bars and the margin: the figures
BAR = 16
PITCH = 23
GROUP_GAP = 18
TOP = 92
TIMES = "\N{MULTIPLICATION SIGN}"

STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2328 }
  .title { font-size: 18px; font-weight: 600 }
  .size, .own { font-weight: 600 }
  .note { font-size: 11.5px; fill: #59636e }
  .paper { fill: #ffffff; stroke: #d1d9e0 }
  .bar { fill: #a3b1c2 }
  .bar.own { fill: #1f6feb }
  .grid { stroke: #e4e8ed }
  .floor { stroke: #1f2328; stroke-dasharray: 3 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .note { fill: #9198a1 }
    .paper { fill: #0d1117; stroke: #3d444d }
    .bar { fill: #5b6775 }
    .bar.own { fill: #58a6ff }
    .grid { stroke: #262c36 }
    .floor { stroke: #e6edf3 }
  }
"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    classes = f' class="{kind}"' if kind else ""
    aligned = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:g}" y="{y:g}"{classes}{aligned}>{escape(words)}</text>'


def line(x: float, y1: float, y2: float, kind: str) -> str:
    """Return a vertical line."""
    return f'<line class="{kind}" x1="{x:g}" y1="{y1:g}" x2="{x:g}" y2="{y2:g}"/>'


def byte_size(size: int) -> str:
    """Return a size as people write it."""
    return f"{size // 1024} KiB" if size >= 1024 and size % 1024 == 0 else f"{size} B"


def machine_lines(machine: dict[str, Any]) -> list[str]:
    """Return the description of the machine, in lines that fit."""
    versions = dict.fromkeys(
        version for listed in machine["loops"].values() for version in listed.split(", ")
    )
    python = f"Python {machine['python']}"
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores",
        machine["kernel"],
        machine["libc"],
        python,
        ", ".join(version for version in versions if version != python),
        f"{machine['date']}, commit {machine['commit']}",
    ]
    return textwrap.wrap(" · ".join(part for part in parts if part), width=120)


def tick_step(highest: float) -> float:
    """Return a round distance between gridlines that leaves at most ten of them."""
    for magnitude in (0.1, 1.0, 10.0):
        for digit in (1, 2, 5):
            if highest <= 10 * digit * magnitude:
                return digit * magnitude
    raise common.BenchError(f"a loop that costs {highest:g} times the floor is past drawing")


class Scale:
    """Ratios across the picture, from nothing to a round number above the longest bar."""

    left = MARGIN + LABELS
    right = WIDTH - MARGIN - VALUES

    def __init__(self, highest: float) -> None:
        step = tick_step(highest)
        count = max(math.ceil(highest / step), math.ceil(1 / step))
        self.ticks = [step * number for number in range(count + 1)]

    def across(self, ratio: float) -> float:
        return self.left + (self.right - self.left) * min(ratio / self.ticks[-1], 1)


def bar(scale: Scale, y: float, row: dict[str, Any]) -> Iterator[str]:
    """Yield one loop's name, bar and figures."""
    own = "own" if row["loop"] == "pelton" else ""
    end = scale.across(row["floor_ratio"])
    yield text(scale.left - 10, y + 12, row["loop"], own, "end")
    yield (
        f'<rect class="bar {own}" x="{scale.left}" y="{y:g}" width="{end - scale.left:.1f}" '
        f'height="{BAR}" rx="2"/>'
    )
    figures = f"{row['floor_ratio']:.2f}{TIMES} · {row['cpu_us']:.1f} µs"
    # Figures keep clear of the dashed line.
    yield text(max(end, scale.across(1)) + 8, y + 12, figures, own)


def draw(results: dict[str, Any], kind: str) -> str:
    """Return the picture of one kind of server."""
    rows = [row for row in results["rows"] if row["kind"] == kind and row["loop"] != common.FLOOR]
    if not rows:
        raise common.BenchError(f"the results hold no {kind} server")
    scale = Scale(max(row["floor_ratio"] for row in rows))
    bars = []
    y = TOP
    for size in sorted({row["size"] for row in rows}):
        bars.append(text(MARGIN, y + 12, byte_size(size), "size"))
        for row in (row for row in rows if row["size"] == size):
            bars += bar(scale, y, row)
            y += PITCH
        y += GROUP_GAP
    bottom = y - GROUP_GAP
    notes = machine_lines(results["machine"])
    height = bottom + 50 + 16 * len(notes)
    conns, rounds = results["settings"]["conns"], results["settings"]["rounds"]
    title = "Server CPU time per echoed message, relative to a bare epoll server"
    about = (
        f"TCP, asyncio {kind} server, {conns} connections, medians of {rounds} interleaved "
        "rounds. Shorter is better; the dashed line is the bare server."
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(about)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        text(MARGIN, 38, title, "title"),
        text(MARGIN, 60, about, "note"),
    ]
    for tick in scale.ticks:
        parts.append(line(scale.across(tick), TOP - 8, bottom, "grid"))
        label = f"{tick:g}{TIMES}"
        parts.append(text(scale.across(tick), bottom + 17, label, "note", "middle"))
    parts += [*bars, line(scale.across(1), TOP - 8, bottom, "floor")]
    for number, note in enumerate(notes):
        parts.append(text(MARGIN, bottom + 46 + 16 * number, note, "note"))
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Read the results and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--name", type=common.file_name, default="echo", help="of results/NAME.json")
    add("--kind", choices=KINDS, default="protocol")
    add("--output", type=Path, default=common.ROOT / "docs" / "echo.svg")
    options = parser.parse_args()
    source = common.HERE / "results" / f"{options.name}.json"
    if not source.exists():
        raise common.BenchError(f"there is no {source}: run compare.py first")
    picture = draw(json.loads(source.read_text()), options.kind)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(picture)
    print(f"written: {options.output}")


if __name__ == "__main__":
    common.run_main(main)
