"""The event loops under comparison: their names, factories and versions.

A name is one of ``KNOWN``, or ``MODULE:FACTORY`` for a callable that returns a new loop.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import importlib.util
import platform
from collections.abc import Callable
from typing import cast

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

#: The distributions, besides Python itself, that each known name needs.
KNOWN: dict[str, tuple[str, ...]] = {
    "asyncio": (),
    "uvloop": ("uvloop",),
    "aiofastnet": ("aiofastnet",),
    "aiofastnet+uvloop": ("aiofastnet", "uvloop"),
    "pelton": ("pelton",),
}


class UnknownLoop(Exception):
    """A loop's name means nothing here, or what it names is not installed."""


def loop_factory(name: str) -> LoopFactory:
    """Return the factory of new loops for ``name``."""
    check(name)
    if name == "asyncio":
        return asyncio.new_event_loop
    if name.startswith("aiofastnet"):
        aiofastnet = importlib.import_module("aiofastnet")
        base = loop_factory("uvloop") if name.endswith("+uvloop") else asyncio.new_event_loop
        return cast(LoopFactory, aiofastnet.loop_factory(base))
    module, _, attribute = name.partition(":")
    factory = getattr(importlib.import_module(module), attribute or "new_event_loop", None)
    if not callable(factory):
        raise UnknownLoop(f"{name}: {module} has no callable {attribute or 'new_event_loop'}")
    return cast(LoopFactory, factory)


def check(name: str) -> None:
    """Raise `UnknownLoop` unless ``name`` is known, or a MODULE:FACTORY, and installed."""
    if name in KNOWN:
        modules = KNOWN[name]
    else:
        module, colon, attribute = name.partition(":")
        if not (module and colon and attribute):
            known = ", ".join(KNOWN)
            raise UnknownLoop(f"{name!r} is no loop: give one of {known}, or MODULE:FACTORY")
        modules = (module,)
    for module in modules:
        try:
            found = importlib.util.find_spec(module) is not None
        except ImportError:  # the parent package of a dotted name
            found = False
        if not found:
            raise UnknownLoop(f"{name}: there is no module {module} for this Python")


def versions(name: str) -> str:
    """Return the versions of the packages behind ``name``, as ``package version, ...``."""
    if name == "asyncio":
        return f"Python {platform.python_version()}"
    packages = KNOWN.get(name, (name.partition(":")[0].partition(".")[0],))
    return ", ".join(f"{package} {_version(package)}" for package in packages)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
