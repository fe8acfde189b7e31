"""What an admin response means: the error of the whole, and the result or the error of each item."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.core.calls import Again, CallOutcome, Done
from pyclient.errors import KafkaError, NotControllerError


def per_item(api: Api, answers: Mapping[str, tuple[int, str | None]]) -> CallOutcome:
    """None or the error of each topic."""
    return settled({name: _item_error(api, name, code, message) for name, (code, message) in answers.items()})


def settled(outcome: Mapping[Any, object]) -> CallOutcome:
    """The result or the error of each item; all are asked again if the controller has moved."""
    moved = next((each for each in outcome.values() if isinstance(each, NotControllerError)), None)
    return Done(dict(outcome)) if moved is None else Again(moved, elsewhere=True)


def refused(api: Api, message: Any, *, user: str = "") -> CallOutcome | None:
    """What the error of a whole response (or of its only part) means: retry, or fail; None without one.

    *user* is the principal that it is about, if one is."""
    code = getattr(message, "error_code", 0)
    if not code:
        return None
    error = error_of(api, code, getattr(message, "error_message", None), user=user)
    return Again(error, elsewhere=isinstance(error, NotControllerError)) if error.retriable else error


def _item_error(api: Api, name: str, code: int, message: str | None) -> KafkaError | None:
    return error_of(api, code, f"topic {name!r}" + (f": {message}" if message else ""), topics=[name]) if code else None
