"""Answers methods and arguments of other clients with the line to write here.

The lines are in `foreign_call_table`. Rule: a name that this client has never gets here, and costs nothing.
"""
from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final, NoReturn, TypeVar

from pyclient.foreign_call_table import ARGUMENTS, HABITS, METHODS, Argument, Habit, Method
from pyclient.signatures import is_async, takes

C = TypeVar("C", bound=type)
_CALL: Final = re.compile(r"\b(?:producer|consumer|admin)\.(\w+)\((?:[^()]*(\))(?=[\[.]))?")
"""A call of a method; as a whole, with the second group, if its result is used at once."""
_TOO_MANY: Final = {"subscribe": "second_of_subscribe"}
"""The habit of those who give a method more positional arguments than it has here."""


def no_attribute(thing: object, owner: str, name: str) -> AttributeError:
    """The error for an attribute that *thing*, in the table called *owner*, does not have."""
    row, cls = METHODS.get((owner, name)), thing if isinstance(thing, type) else type(thing)
    text = f"{cls.__name__!r} object has no attribute {name!r}"
    if row is not None:
        text += f", which is {_whose(row)}: {written(row, cls)}"
    return AttributeError(text, name=name, obj=thing)


def foreign_argument(owner: str, method: str, argument: str, facade: type = object) -> TypeError:
    """The error for an argument of the table."""
    row = ARGUMENTS[owner, method, argument]
    return TypeError(f"{argument} of {row.call} is {_whose(row)}: {written(row, facade)}")


def unknown_keywords(owner: str, method: str, given: Mapping[str, object], facade: type) -> TypeError:
    """The error for keywords *given* to a method that takes no others, and refuses them itself."""
    for name in sorted(given):
        if (owner, method, name) in ARGUMENTS:
            return foreign_argument(owner, method, name, facade)
    return TypeError(f"{facade.__name__}.{method}() got an unexpected keyword argument {min(given)!r}")


def habit(name: str) -> str:
    """What is said of a habit of the table."""
    row = HABITS[name]
    return f"{row.there} is {_whose(row)}: {written(row)}"


def written(row: Method | Argument | Habit, facade: type = object) -> str:
    """What to write and the note."""
    return "; ".join(filter(None, [f"write {line_here(row, facade)}" if row.here else "", row.note]))


def line_here(row: Method | Argument | Habit, facade: type = object) -> str:
    """The line to write, with ``await`` where *facade*'s methods are awaited."""
    def awaited(call: re.Match[str]) -> str:
        is_awaited = inspect.iscoroutinefunction(getattr(facade, call[1], None)) or (call[1] == "send" and hasattr(facade, "__aenter__"))
        if not is_awaited:
            return call[0]
        return f"(await {call[0]})" if call[2] else f"await {call[0]}"

    here = _CALL.sub(awaited, row.here)
    return here.replace("next(iter(", "await anext(aiter(") if hasattr(facade, "__aiter__") else here


def _whose(row: Method | Argument | Habit) -> str:
    return " and ".join(f"{client}'s" for client in row.clients)


# ── where the answers are given ──────────────────────────────────────────────────────────────────────────────────────


class Foreign:
    """An attribute that a class does not have: reading it raises, so ``hasattr`` is False.

    ``__getattr__`` would do the same, but it slows down every call of the attributes that there are.
    """

    def __init__(self, owner: str, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: object, cls: type | None = None) -> NoReturn:
        raise no_attribute(cls if instance is None else instance, self._owner, self._name)


def foreign_attributes(owner: str) -> dict[str, Foreign]:
    """The attributes of *owner* in other clients, by name."""
    return {row.name: Foreign(owner, row.name) for row in METHODS.values() if row.owner == owner}


def answers_foreign_calls(owner: str) -> Callable[[C], C]:
    """Decorate a class: its methods refuse arguments of the table, and names of the table raise what to write.

    Methods that the table does not name are left as they are, and so is one that takes ``**foreign`` to refuse it
    itself: around it is no call behind which Ctrl-C could lose its result. Its signature does not show that.
    """
    def decorate(cls: C) -> C:
        for method in {row.method for row in ARGUMENTS.values() if row.owner == owner} - {"send"}:
            call = inspect.getattr_static(cls, method, None)
            if isinstance(call, FunctionType) and call.__code__.co_flags & inspect.CO_VARKEYWORDS:
                _hide_keywords(call)
            elif isinstance(call, FunctionType | staticmethod):
                setattr(cls, method, _refusing(call, owner, method, cls))
        for name, foreign in foreign_attributes(owner).items():
            if not hasattr(cls, name):
                setattr(cls, name, foreign)
        cls.__dir__ = own_names  # type: ignore[assignment,method-assign]
        return cls

    return decorate


def own_names(thing: object) -> list[str]:
    """What completion shows."""
    return [name for name in object.__dir__(thing) if not isinstance(inspect.getattr_static(type(thing), name, None), Foreign)]


def _hide_keywords(call: FunctionType) -> None:
    shown = inspect.signature(call)
    own = [each for each in shown.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    call.__signature__ = shown.replace(parameters=own)  # type: ignore[attr-defined]  # `inspect` looks for it


def _refusing(call: Callable[..., Any], owner: str, method: str, cls: type) -> Callable[..., Any]:
    refused = {row.name for row in ARGUMENTS.values() if (row.owner, row.method) == (owner, method)}
    most = call.__code__.co_argcount if method in _TOO_MANY else sys.maxsize

    def check(args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if len(args) > most:
            raise TypeError(habit(_TOO_MANY[method]))
        found = refused.intersection(keywords)
        if found:
            raise foreign_argument(owner, method, min(found), cls)

    @functools.wraps(call)
    def plain(*args: Any, **keywords: Any) -> Any:
        if keywords or len(args) > most:
            check(args, keywords)
        return call(*args, **keywords)

    @functools.wraps(call)
    async def coroutine(*args: Any, **keywords: Any) -> Any:
        if keywords or len(args) > most:
            check(args, keywords)
        return await call(*args, **keywords)

    return coroutine if inspect.iscoroutinefunction(call) else plain


def check_on_delivery(callback: object) -> None:
    """Refuse a delivery callback that would raise when it is called: it needs one argument, the Delivery.

    Raises:
        TypeError: it cannot be called, is an ``async def`` function, or takes other arguments, as confluent-kafka's
            ``(err, msg)``.
    """
    if not callable(callback):
        raise TypeError(f"a delivery callback must be callable, as in on_delivery=lambda delivery: ...; got {type(callback).__name__} {callback!r}")
    if is_async(callback):
        raise TypeError("a delivery callback is a plain function, got an `async def` function, which would never be awaited: "
                        "start a task in the callback, or `await` the delivery")
    if takes(callback, 1):
        return
    if takes(callback, 2):
        raise TypeError(habit("err_msg"))
    raise TypeError(f"a delivery callback takes one argument, the Delivery, as in on_delivery=lambda delivery: ...; got {callback!r}, which does not")
