"""Run tests under valgrind's memcheck; fail on any error of pelton's code.

    python tools/memcheck.py [PYTEST ARGUMENT ...]

CPython's own allocator is switched off (PYTHONMALLOC=malloc), so that every object is a block that
valgrind knows. An error is pelton's where the innermost frame is, apart from libraries that it
calls. The others are counted by kind and not judged: that takes the place of suppressions, which
name frames by version.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

OBJECT = "_pelton"

#: Libraries whose frames stand for their caller: what pelton gave them was wrong.
CALLED = ("vgpreload", "libc.so", "libc-", "ld-linux", "libssl", "libcrypto", "libpthread", "libm.")

#: How much slower than usual tests are told to be patient for.
SLOWDOWN = "40"

VALGRIND = [
    "--tool=memcheck",
    "--quiet",
    "--trace-children=no",
    "--num-callers=30",
    "--error-limit=no",
    "--xml=yes",
    "--leak-check=no",
]


def faults(report: Path) -> Iterator[ElementTree.Element]:
    """The errors of a report, but for leaks. A process that was killed leaves it without an end."""
    try:
        for _, element in ElementTree.iterparse(report):
            if element.tag == "error" and not (element.findtext("kind") or "").startswith("Leak"):
                yield element
    except ElementTree.ParseError:
        return


def is_ours(fault: ElementTree.Element) -> bool:
    """Whether pelton did it, itself or by what it called: no frame of Python's is nearer."""
    stack = fault.find("stack")
    for frame in stack.iter("obj") if stack is not None else ():
        name = Path(frame.text or "").name
        if not name.startswith(CALLED):
            return OBJECT in name
    return False


def describe(fault: ElementTree.Element) -> str:
    what = fault.findtext("what") or fault.findtext("xwhat/text") or "?"
    lines = [f"{fault.findtext('kind')}: {what}"]
    for part in fault:
        if part.tag in ("auxwhat", "xauxwhat"):
            lines.append(f"  {part.text or part.findtext('text')}")
        if part.tag == "stack":
            for frame in part.iter("frame"):
                place = frame.findtext("file") or Path(frame.findtext("obj") or "?").name
                line = frame.findtext("line") or ""
                lines.append(f"    {frame.findtext('fn') or '?'} ({place}:{line})")
    return "\n".join(lines)


def main() -> int:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("SKIPPED: valgrind is not installed", file=sys.stderr)
        return 0 if os.environ.get("CI") != "true" else 1
    environment = {
        **os.environ,
        "PYTHONMALLOC": "malloc",
        "PELTON_TEST_SLOWDOWN": SLOWDOWN,
    }
    with tempfile.TemporaryDirectory(prefix="pelton-memcheck-") as folder:
        report = Path(folder) / "report.xml"
        command = [valgrind, *VALGRIND, f"--xml-file={report}", sys.executable, "-m", "pytest"]
        status = subprocess.run([*command, *sys.argv[1:]], env=environment, check=False).returncode
        found = list(faults(report))
    ours = [fault for fault in found if is_ours(fault)]
    for fault in ours:
        print(describe(fault), end="\n\n")
    others = Counter(fault.findtext("kind") for fault in found if not is_ours(fault))
    elsewhere = ", ".join(f"{count} {kind}" for kind, count in others.most_common()) or "none"
    print(f"memcheck: {len(ours)} errors of pelton's code; elsewhere: {elsewhere}")
    return 1 if ours or status else 0


if __name__ == "__main__":
    sys.exit(main())
