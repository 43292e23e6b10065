"""tools/tally.py reads the closing lines of the runners."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "tally.py"


@pytest.fixture(scope="module")
def tally():
    spec = importlib.util.spec_from_file_location("tally", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.tally


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("     Summary [   0.4s] 3 tests run: 2 passed, 1 failed, 0 skipped", (2, 1)),
        ("     Summary [   0.4s] 4 tests run: 2 passed (1 slow), 1 timed out, 1 exec failed", (2, 2)),
        ("\x1b[32m     Summary\x1b[0m [   0.1s] 1 test run: \x1b[1m1\x1b[0m passed", (1, 0)),
        ("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; finished in 0.00s", (3, 0)),
        ("====== 1 failed, 20 passed, 3 skipped, 2 errors in 12.30s ======", (20, 3)),
        ("====== 120 passed, 1 warning in 61.30s (0:01:01) ======", (120, 0)),
        ("suites: 1700 passed, 2 failed, 40 known", (1700, 2)),
        ("cpython: 5 passed, 5 failed, 1 skipped", (0, 0)),
        ("======= 3 passed things that are no summary =======", (0, 0)),
    ],
)
def test_closing_line(tally, line, counts):
    assert tally(f"something before\n{line}\nsomething after: 9 passed\n") == counts


def test_all_lines_add_up(tally):
    log = "test result: ok. 3 passed; 0 failed\ntest result: FAILED. 1 passed; 2 failed\n"
    assert tally(log) == (4, 2)
