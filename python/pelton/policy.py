"""The event loop policy (before Python 3.16): makes pelton the default loop of a process."""

import asyncio
import warnings

from .loop import Loop

with warnings.catch_warnings():
    # Deprecated since 3.14: whoever imports this module has asked for it by name.
    warnings.simplefilter("ignore", DeprecationWarning)
    _Base = asyncio.DefaultEventLoopPolicy


class EventLoopPolicy(_Base):
    """asyncio's own policy, with pelton's loop."""

    def _loop_factory(self) -> Loop:
        return Loop()


def install() -> None:
    """Make pelton the loop of everything that asks asyncio for one.

    Deprecated by asyncio since 3.14: prefer `pelton.run()` or `loop_factory=`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(EventLoopPolicy())
