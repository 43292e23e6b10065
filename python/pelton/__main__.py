"""Run an unmodified program with pelton as its default loop.

    python -m pelton script.py [args ...]
    python -m pelton -m module [args ...]

Whichever of asyncio's ways the program starts a loop (`asyncio.run`, `Runner`, `new_event_loop`,
the policy, `SelectorEventLoop`), it gets pelton's. `import uvloop` finds pelton too, so that a
server that prefers uvloop where it is installed takes this loop.
"""

import asyncio
import runpy
import sys
from pathlib import Path

import pelton

USAGE = "usage: python -m pelton (script.py | -m module) [args ...]"


def take_over() -> None:
    """Make pelton the loop of every way that asyncio has to start one."""
    if sys.version_info < (3, 16):
        pelton.install()
        asyncio.DefaultEventLoopPolicy = pelton.EventLoopPolicy
    for module in (asyncio, asyncio.unix_events):
        for name in ("SelectorEventLoop", "EventLoop", "new_event_loop"):
            if hasattr(module, name):
                setattr(module, name, pelton.new_event_loop if name.islower() else pelton.Loop)
    sys.modules["uvloop"] = pelton


def main() -> None:
    """Parse the command line and run the program in this process."""
    args = sys.argv[1:]
    if args in (["-h"], ["--help"]):
        print(USAGE)
        return
    if not args or (args[0] == "-m" and len(args) < 2):
        sys.exit(f"{USAGE}\nerror: name a script or a module")
    if args[0].startswith("-") and args[0] != "-m":
        sys.exit(f"{USAGE}\nerror: unknown option {args[0]}")
    if args[0] == "-m":
        take_over()
        sys.argv = args[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
        return
    script = Path(args[0])
    if not script.exists():
        sys.exit(f"python -m pelton: can't open file {str(script)!r}: no such file")
    take_over()
    sys.argv = args
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
