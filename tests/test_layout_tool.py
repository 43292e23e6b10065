"""tools/check_layout.py finds what it promises to find, and nothing in sound code."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "check_layout.py"

TABLE = """
| file or room | what it does | may name |
|---|---|---|
| `crates/pelton/src/sys` | system calls | |
| `crates/pelton/src/buf.rs` | queues | `sys` |
| `crates/pelton/src/net` | names | `sys`, `buf` |
"""


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("check_layout", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def faults(tool, tmp_path):
    """`faults({path: text})`: what the tool says about a project of these files."""

    def check(files, table=TABLE):
        for path, text in {"docs/architecture.md": table, **files}.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return [str(fault) for fault in tool.check(tmp_path)]

    return check


def test_sound_project(faults):
    assert not faults(
        {
            "crates/pelton/src/lib.rs": "mod sys;\nmod buf;\npub mod net;\n",
            "crates/pelton/src/sys/mod.rs": "// SAFETY: nothing to break.\nunsafe { f() }\n",
            "crates/pelton/src/buf.rs": "use crate::sys::Fd;\nuse crate::buf::Queue;\n",
            "crates/pelton/src/net/mod.rs": "use crate::{buf::{Queue, net}, sys};\n",
        }
    )


@pytest.mark.parametrize(
    "line",
    [
        "use crate::net::connect;",
        "use crate::{sys, net::connect};",
        "fn f() { crate::net::connect(); }",
        "use super::net;",
    ],
)
def test_arrow_upwards(faults, line):
    found = faults({"crates/pelton/src/buf.rs": f"// a line\n{line}\n"})
    assert found == ["crates/pelton/src/buf.rs:2: `buf` names `net`; it may name sys"]


@pytest.mark.parametrize(
    ("line", "sound"),
    [
        ("use crate::net::Interest;", True),
        ("use crate::{sys::{a, b}, net::Interest};", True),
        ("use crate::net::Token;", False),
        ("use crate::net;", False),
        ("use crate::net::{Interest, Token};", False),
    ],
)
def test_one_item_of_a_room_may_be_granted(faults, line, sound):
    table = TABLE.replace("queues | `sys` |", "queues | `sys`, `net::Interest` |")
    table = table.replace("names | `sys`, `buf` |", "names | `sys` |")
    assert (not faults({"crates/pelton/src/buf.rs": f"{line}\n"}, table)) is sound


@pytest.mark.parametrize(
    "line",
    [
        "// use crate::net;",
        "/* /* nested */ use crate::net; */",
        'const TEXT: &str = "crate::net \\" crate::net";',
        'const TEXT: &str = r#"crate::net"#;',
        "use crate::sys::{net, other};",
        "fn f<'a>(x: &'a str) { g('\"'); }",
    ],
)
def test_not_an_arrow(faults, line):
    assert not faults({"crates/pelton/src/buf.rs": f"{line}\n"})


def test_super_inside_a_room_is_no_arrow(faults):
    assert not faults({"crates/pelton/src/buf/queue.rs": "use super::net;\n"})
    found = faults({"crates/pelton/src/buf/queue.rs": "use super::super::net;\n"})
    assert found == ["crates/pelton/src/buf/queue.rs:1: `buf` names `net`; it may name sys"]


def test_room_without_a_row(faults):
    (found,) = faults({"crates/pelton/src/new.rs": ""})
    assert found.startswith("crates/pelton/src/new.rs:1: room `new` has no row")


def test_circle_in_the_table(faults):
    found = faults({}, TABLE.replace("system calls | |", "system calls | `net` |"))
    assert "docs/architecture.md:1: the arrows from `sys` lead back to it" in found


def test_pyo3_stays_in_its_crate(faults):
    found = faults(
        {
            "crates/pelton/Cargo.toml": "[dependencies]\npyo3.workspace = true\n",
            "crates/pelton/src/buf.rs": "use pyo3::Python;\n",
            "crates/pelton-python/src/lib.rs": "use pyo3::Python;\n",
        }
    )
    assert [line.partition(": ")[0] for line in found] == [
        "crates/pelton/Cargo.toml:2",
        "crates/pelton/src/buf.rs:1",
    ]


def test_length(faults):
    long = "x = 1\n" * 601
    assert faults({"python/pelton/big.py": long, "tests/big.py": long}) == [
        "python/pelton/big.py:601: 601 lines; past 600 it is two ideas: split it"
    ]


def test_unsafe_outside_its_rooms(faults):
    code = "// SAFETY: fine.\nunsafe { f() }\n"
    (found,) = faults({"crates/pelton/src/buf.rs": code, "crates/pelton/tests/count.rs": code})
    assert found.startswith("crates/pelton/src/buf.rs:2: `unsafe` outside")


@pytest.mark.parametrize(
    ("code", "sound"),
    [
        ("// SAFETY: live.\nlet x = unsafe { f() };\n", True),
        ("// SAFETY: live,\n// as the caller says.\n#[inline]\nunsafe impl Send for X {}\n", True),
        ("// SAFETY: live.\nlet x =\n    unsafe { f() };\n", True),
        ("let x = unsafe { f() };\n", False),
        ("// SAFETY: of something else.\nlet y = 1;\nunsafe { f() }\n", False),
        ("/// # Safety\n/// `x` is live.\nunsafe fn f(x: *const u8) {}\n", True),
        ("/// Does it.\nunsafe fn f(x: *const u8) {}\n", False),
        ("// SAFETY: sound.\nunsafe impl T for X {\n    unsafe fn f() {}\n}\n", True),
        ('unsafe extern "C" fn entry() {}\n', True),
        ('unsafe extern "C" { fn f(); }\n', False),
        ('type Call = unsafe extern "C" fn(i32);\n', True),
        ("#![deny(unsafe_code)]\n", True),
    ],
)
def test_safety_note(faults, code, sound):
    assert (not faults({"crates/pelton/src/sys/a.rs": code})) is sound
