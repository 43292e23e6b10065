"""Check the layout of the house: arrows between rooms, file lengths, where `unsafe` stands.

    python tools/check_layout.py [ROOT]

The rooms and what each may name are the table in docs/architecture.md: it is read from there, so
the page cannot differ from what is enforced. Needs nothing but Python.

| rule | what is refused |
|---|---|
| arrows | a room of the engine that names a room the table does not grant it, or has no row |
| bindings | PyO3 named outside crates/pelton-python |
| length | a .rs or .py file past 600 lines, outside tests, fuzz and benches |
| unsafe room | `unsafe` in a crate's src outside sys, tls/libssl (engine) and ffi (bindings) |
| safety note | an unsafe block or impl without `// SAFETY:` above, a fn without `# Safety` |

Entry points that C calls (`unsafe extern "C" fn`) need no `# Safety`: the slot they fill has it.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LONGEST = 600
LENGTH_EXEMPT = {"tests", "fuzz", "benches"}
ENGINE = "crates/pelton/src"
BINDINGS = "crates/pelton-python"
UNSAFE_ROOMS = (f"{ENGINE}/sys", f"{ENGINE}/tls/libssl", f"{BINDINGS}/src/ffi")
ARCHITECTURE = "docs/architecture.md"
NOT_OURS = {"target", "__pycache__", "build", "dist"}

# What each room may name: whole rooms (`sys`), or one item of a room (`reactor::Interest`).
Rooms = dict[str, set[str]]


class Fault(NamedTuple):
    """One broken rule: where, and what to do about it."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class Source(NamedTuple):
    """A file: its text, and for Rust the same with comments and literals blanked out."""

    path: str
    text: str
    code: str


# -- reading ------------------------------------------------------------------------------------

_RUST_TRIVIA = re.compile(
    r"""
      //[^\n]*                                    # line comment
    | /\*                                         # block comment: may nest, see below
    | b?r(?P<hashes>\#*)".*?"(?P=hashes)          # raw string
    | [bc]?"(?:\\.|[^"\\])*"                      # string
    | b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])'     # character; a lifetime has no closing quote
    """,
    re.DOTALL | re.VERBOSE,
)


def rust_code(text: str) -> str:
    """The text with comments, strings and characters as blanks; every line keeps its number."""
    out: list[str] = []
    at = 0
    while found := _RUST_TRIVIA.search(text, at):
        start, end = found.span()
        if found[0] == "/*":
            end = _comment_end(text, start)
        out += [text[at:start], re.sub(r"[^\n]", " ", text[start:end])]
        at = end
    return "".join(out) + text[at:]


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def sources(root: Path) -> Iterator[Source]:
    """Every Rust and Python file of the project."""
    for top in ("crates", "python", "tools", "tests", "benches", "examples", "fuzz"):
        for file in sorted((root / top).rglob("*")):
            path = file.relative_to(root)
            hidden = any(part in NOT_OURS or part.startswith(".") for part in path.parts)
            if hidden or file.suffix not in (".rs", ".py") or not file.is_file():
                continue
            text = file.read_text("utf-8")
            code = rust_code(text) if file.suffix == ".rs" else text
            yield Source(path.as_posix(), text, code)


def read_rooms(page: str) -> Rooms:
    """The engine's rooms from the table: rows whose first cell is `crates/pelton/src/ROOM`."""
    row = re.compile(rf"^\|\s*`{ENGINE}/(\w+)(?:\.rs|/)?`\s*\|.*\|([^|]*)\|\s*$", re.MULTILINE)
    return {room: set(re.findall(r"`([\w:]+)`", names)) for room, names in row.findall(page)}


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


# -- arrows -------------------------------------------------------------------------------------


def check_rooms(rooms: Rooms) -> Iterator[Fault]:
    """The table itself must be one-way: no room reaches itself."""
    if not rooms:
        yield Fault(ARCHITECTURE, 1, f"the table has no row for any room of {ENGINE}")
    for room in rooms:
        seen: set[str] = set()
        todo = set(rooms[room])
        while todo:
            name = todo.pop().partition("::")[0]
            if name not in rooms:
                yield Fault(ARCHITECTURE, 1, f"`{room}` may name `{name}`, which has no row")
            seen.add(name)
            todo |= rooms.get(name, set()) - seen
        if room in seen:
            yield Fault(ARCHITECTURE, 1, f"the arrows from `{room}` lead back to it")


def check_arrows(source: Source, rooms: Rooms) -> Iterator[Fault]:
    """A file of the engine names only rooms that its own room may name."""
    if not source.path.startswith(f"{ENGINE}/"):
        return
    module = list(Path(source.path).relative_to(ENGINE).with_suffix("").parts)
    room = module[0]
    if room in ("lib", "main"):
        return
    if room not in rooms:
        yield Fault(source.path, 1, f"room `{room}` has no row in the table of {ARCHITECTURE}")
        return
    if module[-1] == "mod":
        module.pop()
    for offset, named, item in _named_modules(source.code, module):
        granted = {named, f"{named}::{item}"} & rooms[room]
        if named in rooms and named != room and not granted:
            allowed = ", ".join(sorted(rooms[room])) or "no other room"
            line = line_of(source.code, offset)
            yield Fault(source.path, line, f"`{room}` names `{named}`; it may name {allowed}")


def _named_modules(code: str, module: list[str]) -> Iterator[tuple[int, str, str | None]]:
    """Each `crate::x::y`, also by `super::` and inside braces, as (offset, x, y)."""
    path = re.compile(r"(\w+)(?:\s*::\s*(\w+))?")
    for found in re.finditer(r"\b(crate|super(?:\s*::\s*super)*)\s*::\s*(?=[\w{])", code):
        climbs = found[1].count("super")
        if found[1] != "crate" and climbs != len(module):
            continue
        depth = 0
        for token in re.compile(r"[{},]|\w+").finditer(code, found.end()):
            depth += {"{": 1, "}": -1}.get(token[0], 0)
            # A name starts a path where nothing of a path stands before it.
            first = token.start() == found.end() or code[: token.start()].rstrip()[-1] in "{,"
            if depth <= 1 and first and (name := path.match(code, token.start())):
                yield token.start(), name[1], name[2]
            if depth == 0:
                break


def check_bindings(root: Path, all_sources: list[Source]) -> Iterator[Fault]:
    """Only the Python crate knows Python."""
    manifests = [
        Source(file.relative_to(root).as_posix(), text := file.read_text("utf-8"), text)
        for file in sorted((root / "crates").glob("*/Cargo.toml"))
    ]
    for source in manifests + [s for s in all_sources if s.path.endswith(".rs")]:
        if source.path.startswith(f"{BINDINGS}/"):
            continue
        for found in re.finditer(r"\bpyo3\b", source.code):
            line = line_of(source.code, found.start())
            yield Fault(source.path, line, f"names PyO3; only {BINDINGS} may")


# -- length -------------------------------------------------------------------------------------


def check_length(source: Source) -> Iterator[Fault]:
    lines = source.text.count("\n")
    if lines > LONGEST and not LENGTH_EXEMPT & set(Path(source.path).parts):
        text = f"{lines} lines; past {LONGEST} it is two ideas: split it"
        yield Fault(source.path, LONGEST + 1, text)


# -- unsafe -------------------------------------------------------------------------------------

# What follows the word; nothing of these: a function pointer type, or an entry point for C.
_UNSAFE = re.compile(r"\bunsafe\b(?=\s*(?P<what>[{(]|impl\b|trait\b|fn +\w|extern *\{)?)")


def check_unsafe(source: Source) -> Iterator[Fault]:
    """`unsafe` stands in its rooms, and each use says why it is right."""
    if not source.path.endswith(".rs"):
        return
    lines = source.text.splitlines()
    parts = source.path.split("/")
    in_src = parts[0] == "crates" and "src" in parts
    trait_impls: list[tuple[int, int]] = []  # their methods have the contract of the trait
    for found in _UNSAFE.finditer(source.code):
        line = line_of(source.code, found.start())
        if in_src and not source.path.startswith(tuple(f"{room}/" for room in UNSAFE_ROOMS)):
            yield Fault(source.path, line, f"`unsafe` outside {' and '.join(UNSAFE_ROOMS)}")
        what = found["what"] or ""
        note = _comment_above(lines, line - 1)
        if what == "impl":
            trait_impls.append((found.start(), _block_end(source.code, found.end())))
        if what.startswith(("fn", "trait")):
            inherited = any(start < found.start() < end for start, end in trait_impls)
            if "# Safety" not in note and not inherited:
                yield Fault(source.path, line, "unsafe fn or trait without `# Safety` above")
        elif what and "SAFETY:" not in note:
            yield Fault(source.path, line, "unsafe without `// SAFETY:` just above")


def _block_end(code: str, start: int) -> int:
    depth = 0
    for brace in re.compile(r"[{}]").finditer(code, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return len(code)


def _comment_above(lines: list[str], index: int) -> str:
    """The comments and attributes that end on the line before, and a comment on the line itself.

    A line that ends in `=` or `(` is the begin of the same statement.
    """
    note = [lines[index].partition("//")[2]]
    while index and lines[index - 1].rstrip().endswith(("=", "(")):
        index -= 1
    for line in reversed(lines[:index]):
        text = line.strip()
        if not text.startswith(("//", "#[", "#![")):
            break
        note.append(text)
    return "\n".join(note)


# -- all of it ----------------------------------------------------------------------------------


def check(root: Path) -> list[Fault]:
    """Every broken rule under `root`."""
    page = root / ARCHITECTURE
    rooms = read_rooms(page.read_text("utf-8") if page.exists() else "")
    all_sources = list(sources(root))
    faults = list(check_rooms(rooms))
    faults += check_bindings(root, all_sources)
    for source in all_sources:
        faults += check_arrows(source, rooms)
        faults += check_length(source)
        faults += check_unsafe(source)
    return sorted(faults)


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    for fault in faults:
        print(fault)
    print(f"layout: {len(faults)} faults" if faults else "layout: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
