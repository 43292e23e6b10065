"""An asyncio event loop on a Rust network engine; see https://docs.python.org/3/library/asyncio.

import pelton
pelton.run(main())
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ._pelton import __version__, tls_engine
from .loop import Loop

if TYPE_CHECKING:
    from .policy import EventLoopPolicy, install

__all__ = [
    "EventLoopPolicy",
    "Loop",
    "__version__",
    "install",
    "new_event_loop",
    "run",
    "tls_engine",
]

_T = TypeVar("_T")

# Policies are gone in Python 3.16; so are the two names that need one.
_POLICY_NAMES = ("EventLoopPolicy", "install")
if sys.version_info >= (3, 16):
    __all__ = [name for name in __all__ if name not in _POLICY_NAMES]


def new_event_loop() -> Loop:
    """A new loop, not yet running and not set as the current one."""
    return Loop()


def run(
    main: Coroutine[Any, Any, _T],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = new_event_loop,
    debug: bool | None = None,
    **run_kwargs: Any,
) -> _T:
    """Run a coroutine on a new loop, and close the loop, as `asyncio.run` does.

    `loop_factory` makes the loop; `debug` sets its debug mode; further keywords go to
    `asyncio.Runner`. Raises `RuntimeError` in a thread whose loop is running, `ValueError`
    (`TypeError` from 3.14 on) for anything that is not a coroutine.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("pelton.run() cannot be called from a running event loop")
    with asyncio.Runner(loop_factory=loop_factory, debug=debug, **run_kwargs) as runner:
        return runner.run(main)


def __getattr__(name: str) -> Any:
    if name in _POLICY_NAMES and name in __all__:
        from . import policy

        return getattr(policy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
