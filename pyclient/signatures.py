"""Whether a function can be called with so many arguments. Callbacks are checked when they are given."""
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with *count* arguments; true where that is not known, as of some compiled functions."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def is_async(function: object) -> bool:
    """Whether calling it makes a coroutine: it is an ``async def`` function, or an object that has one to call."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
