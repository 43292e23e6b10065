"""Fill the marked tables of docs/performance.md and README.md from the results.

    python benches/report.py

Reads benches/results/*.json, as the drivers wrote them, and replaces what stands between
``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``. A table whose results are missing stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from chart import byte_size
from common import HERE, ROOT, BenchError, run_main


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine(results: dict[str, Any]) -> str:
    """Where and when the figures were made."""
    about = results["machine"]
    loops = ", ".join(sorted(set(about["loops"].values())))
    return (
        f"{about['cpu']}, {about['cores']} cores; {about['kernel']}, {about['libc']}; "
        f"CPython {about['python']}; {loops}. {about['date']}, commit {about['commit']}."
    )


def echo(results: dict[str, Any]) -> str:
    """CPU per message by loop and size, against the floor where it took part."""
    rows = results["rows"]
    cases = list(dict.fromkeys((row["kind"], row["size"]) for row in rows))
    kinds = {kind for kind, _ in cases}

    def cell(loop: str, case: tuple[str, int]) -> str:
        for row in rows:
            if row["loop"] == loop and (row["kind"], row["size"]) == case:
                ratio = row.get("floor_ratio")
                return f"{row['cpu_us']:.2f}" + ("" if ratio is None else f" ({ratio:.2f})")
        return "-"

    head = [
        byte_size(size) if len(kinds) == 1 else f"{kind} {byte_size(size)}" for kind, size in cases
    ]
    loops = dict.fromkeys(row["loop"] for row in rows)
    return table(["loop", *head], ([loop, *(cell(loop, case) for case in cases)] for loop in loops))


def by_loop(figures: dict[str, dict[str, float]], form: str, least: float = 0.0) -> str:
    """One row for each operation, one column for each loop."""
    columns = list(figures.values())
    names = [
        name
        for name in dict.fromkeys(name for column in columns for name in column)
        if any(column.get(name, 0.0) > least for column in columns)
    ]
    rows = (
        [name, *(format(column[name], form) if name in column else "-" for column in columns)]
        for name in names
    )
    return table(["", *figures], rows)


def idle(results: dict[str, Any]) -> str:
    """One column for each loop."""
    return table(
        ["", *results["kib"]], [["KiB", *(f"{kib:.2f}" for kib in results["kib"].values())]]
    )


def handshakes(results: dict[str, Any]) -> str:
    """One column for each loop."""
    medians = results["medians"]
    return table(
        ["", *medians],
        [
            ["CPU µs each", *(f"{row['cpu_us']:,.0f}" for row in medians.values())],
            ["a second", *(f"{row['rate']:,.0f}" for row in medians.values())],
        ],
    )


def heap(results: dict[str, Any]) -> str:
    """One row for each loop: requests, and in brackets those of 128 KiB or more."""
    counted = results["counted"]
    names = list(next(iter(counted.values())))

    def cell(figures: dict[str, float]) -> str:
        return (
            f"{figures['requests']:.1f} ({figures['big']:.0f}), {figures['bytes'] / 1000:,.0f} kB"
        )

    return table(
        ["", *(f"{int(size):,} B" for size in counted)],
        ([name, *(cell(rows[name]) for rows in counted.values())] for name in names),
    )


def postgres(results: dict[str, Any]) -> str:
    """One column for each loop."""
    grown = results["grown_kib"]
    return table(
        ["KiB", *grown],
        ([over, *(f"{kib[over]:,.0f}" for kib in grown.values())] for over in ("TCP", "TLS")),
    )


#: For each table: the results it is made of, and how.
TABLES = {
    "machine": ("echo", machine),
    "echo": ("echo", echo),
    "figures": ("echo", echo),
    "kinds": ("kinds", echo),
    "scheduling": ("scheduling", lambda results: by_loop(results["ns"], ",.0f")),
    "idle": ("idle", idle),
    "tls": ("tls", echo),
    "tls-idle": ("tls-idle", idle),
    "tls-idle-16k": ("tls-idle-16k", idle),
    "handshakes": ("handshakes", handshakes),
    "heap": ("heap", heap),
    "postgres": ("postgres", postgres),
    "datagram": ("datagram", lambda results: by_loop(results["us"], ".2f")),
    "syscalls": ("syscalls", lambda results: by_loop(results["calls"], ".2f", least=0.1)),
}


def fill(page: str) -> str:
    """The page with its tables made anew."""
    for name, (source, make) in TABLES.items():
        path = HERE / "results" / f"{source}.json"
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        if path.exists() and begin in page and end in page:
            before, _, rest = page.partition(begin)
            _, _, after = rest.partition(end)
            page = f"{before}{begin}{make(json.loads(path.read_text()))}\n{end}{after}"
    return page


def main() -> None:
    """Rewrite both pages."""
    for path in (ROOT / "docs" / "performance.md", ROOT / "README.md"):
        if not path.exists():
            raise BenchError(f"{path} is not there")
        path.write_text(fill(path.read_text()))
        print(f"filled: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    run_main(main)
