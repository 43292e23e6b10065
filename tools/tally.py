"""Add up what test runners printed: `python tools/tally.py LOG...` prints `PASSED FAILED`.

Knows the closing lines of nextest, cargo test, pytest and tools/suites.py.
"""

import re
import sys
from pathlib import Path

CLOSING = re.compile(
    r"^(?: *Summary \[.*\] .*tests? run: "  # nextest
    r"|test result: "  # cargo test
    r"|suites: "  # tools/suites.py
    r"|=+ (?=.* in [\d.]+s)).*$",  # pytest
    re.MULTILINE,
)
COLOURS = re.compile(r"\x1b\[[\d;]*m")


def tally(log: str) -> tuple[int, int]:
    """How many tests passed and failed; a fixture that raised and a timeout are failures."""
    closing = CLOSING.findall(COLOURS.sub("", log))

    def total(words: str) -> int:
        return sum(int(n) for line in closing for n in re.findall(rf"(\d+) (?:{words})\b", line))

    return total("passed"), total("failed|errors?|timed out|exec failed")


if __name__ == "__main__":
    counts = [tally(Path(log).read_text("utf-8", "replace")) for log in sys.argv[1:]]
    print(sum(passed for passed, _ in counts), sum(failed for _, failed in counts))
