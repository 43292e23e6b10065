"""The public names of the package, and `python -m pelton`."""

import asyncio
import inspect
import re
import subprocess
import sys
import warnings
from importlib import metadata

import pytest
from helpers import ON_ASYNCIO

if ON_ASYNCIO:
    pytest.skip("these are about pelton itself", allow_module_level=True)

import pelton

HAS_POLICIES = sys.version_info < (3, 16)
needs_policies = pytest.mark.skipif(not HAS_POLICIES, reason="policies are gone in Python 3.16")


def test_names():
    expected = {"Loop", "__version__", "new_event_loop", "run", "tls_engine"}
    if HAS_POLICIES:
        expected |= {"EventLoopPolicy", "install"}
    assert set(pelton.__all__) == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in expected:
            assert getattr(pelton, name) is not None
    assert expected <= set(dir(pelton))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        pelton.nonsense


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", pelton.__version__)
    assert pelton.__version__ == metadata.version("pelton")


def test_new_event_loop():
    loop = pelton.new_event_loop()
    try:
        assert type(loop) is pelton.Loop
        assert isinstance(loop, asyncio.AbstractEventLoop)
        assert pelton.new_event_loop is not loop
    finally:
        loop.close()


def test_the_package_is_typed():
    from importlib import resources

    assert resources.files("pelton").joinpath("py.typed").is_file()


async def which():
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    return type(loop), loop.get_debug()


def test_run():
    assert pelton.run(which()) == (pelton.Loop, sys.flags.dev_mode)
    assert pelton.run(which(), debug=True) == (pelton.Loop, True)
    kind, _ = pelton.run(which(), loop_factory=asyncio.SelectorEventLoop)
    assert kind is asyncio.SelectorEventLoop


def test_run_closes_its_loop_and_cancels_what_is_left():
    seen = []

    async def forever():
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main():
        seen.append(asyncio.get_running_loop())
        seen.append(asyncio.ensure_future(forever()))
        await asyncio.sleep(0)

    pelton.run(main())
    assert seen[0].is_closed()
    assert seen[1].cancelled()
    assert seen[2] == "cancelled"


def test_run_refuses_what_asyncio_refuses():
    with pytest.raises((ValueError, TypeError)):
        pelton.run("text")
    with pytest.raises(TypeError):
        pelton.run(which, nonsense=1)

    async def nested():
        coroutine = which()
        try:
            pelton.run(coroutine)
        finally:
            coroutine.close()

    with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
        pelton.run(nested())
    parameters = inspect.signature(pelton.run).parameters
    assert {"main", "loop_factory", "debug"} <= set(parameters)


def test_runner():
    with asyncio.Runner(loop_factory=pelton.new_event_loop) as runner:
        assert runner.run(which()) == (pelton.Loop, sys.flags.dev_mode)
        assert runner.run(which()) == (pelton.Loop, sys.flags.dev_mode)


@needs_policies
def test_policy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        before = asyncio.get_event_loop_policy()
        try:
            policy = pelton.EventLoopPolicy()
            asyncio.set_event_loop_policy(policy)
            assert asyncio.run(which()) == (pelton.Loop, sys.flags.dev_mode)
            loop = asyncio.new_event_loop()
            loop.close()
            assert type(loop) is pelton.Loop
        finally:
            asyncio.set_event_loop_policy(before)


INSTALLED = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
import asyncio, pelton
pelton.install()
async def main():
    print(type(asyncio.get_running_loop()) is pelton.Loop)
asyncio.run(main())
"""


def python(*args, **kwargs):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=15, **kwargs)


@needs_policies
def test_install():
    done = python("-c", INSTALLED)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_import_starts_nothing():
    """Workers fork after the import: it may open no descriptor and start no thread."""
    source = (
        "import os, threading, asyncio, socket, ssl, concurrent.futures, signal\n"
        "before = os.listdir('/proc/self/fd'), os.listdir('/proc/self/task')\n"
        "import pelton\n"
        "assert (os.listdir('/proc/self/fd'), os.listdir('/proc/self/task')) == before\n"
    )
    done = python("-c", source)
    assert done.returncode == 0, done.stderr


PROGRAM = """
import asyncio, sys

async def main():
    return type(asyncio.get_running_loop()).__module__.split(".")[0]

def with_run():
    return asyncio.run(main())

def with_runner():
    with asyncio.Runner() as runner:
        return runner.run(main())

def with_new_loop():
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()

def with_class():
    loop = asyncio.SelectorEventLoop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()

if __name__ == "__main__":
    print(*(way() for way in (with_run, with_runner, with_new_loop, with_class)))
    print(sys.argv[1:])
"""


@pytest.mark.parametrize("how", ["script", "module"])
def test_an_unmodified_program_runs_on_pelton(tmp_path, how):
    (tmp_path / "program.py").write_text(PROGRAM)
    what = ["program.py"] if how == "script" else ["-m", "program"]
    done = python("-m", "pelton", *what, "an argument", "--flag", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "pelton pelton pelton pelton\n['an argument', '--flag']\n"


def test_a_script_in_another_folder_finds_its_neighbours(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "neighbour.py").write_text("VALUE = 42\n")
    (folder / "script.py").write_text("import sys, neighbour\nprint(neighbour.VALUE, sys.argv[0], __name__)\n")
    done = python("-m", "pelton", str(folder / "script.py"), cwd=tmp_path)
    assert done.stdout == f"42 {folder / 'script.py'} __main__\n", done.stderr


def test_the_exit_code_comes_through(tmp_path):
    (tmp_path / "leave.py").write_text("import sys\nsys.exit(7)\n")
    assert python("-m", "pelton", "leave.py", cwd=tmp_path).returncode == 7
    (tmp_path / "fail.py").write_text("raise LookupError('on purpose')\n")
    done = python("-m", "pelton", "fail.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "LookupError: on purpose" in done.stderr


def test_mistakes_on_the_command_line_are_told(tmp_path):
    for args in ([], ["-m"], ["--nonsense", "x.py"]):
        done = python("-m", "pelton", *args, cwd=tmp_path)
        assert done.returncode != 0
        assert "usage: python -m pelton" in done.stderr
        assert "Traceback" not in done.stderr
    done = python("-m", "pelton", "missing.py", cwd=tmp_path)
    assert done.returncode != 0
    assert "missing.py" in done.stderr
    assert "Traceback" not in done.stderr
    done = python("-m", "pelton", "-m", "no_such_module_here", cwd=tmp_path)
    assert done.returncode != 0
    assert "no_such_module_here" in done.stderr
    done = python("-m", "pelton", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "usage: python -m pelton" in done.stdout
