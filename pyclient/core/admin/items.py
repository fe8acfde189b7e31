"""What each item of an admin response means: None, or its error."""
from __future__ import annotations

from collections.abc import Mapping

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.core.calls import Again, CallOutcome, Done
from pyclient.errors import KafkaError, NotControllerError


def per_item(api: Api, answers: Mapping[str, tuple[int, str | None]]) -> CallOutcome:
    errors = {name: _item_error(api, name, code, message) for name, (code, message) in answers.items()}
    moved = next((error for error in errors.values() if isinstance(error, NotControllerError)), None)
    return Again(moved, elsewhere=True) if moved is not None else Done(errors)


def _item_error(api: Api, name: str, code: int, message: str | None) -> KafkaError | None:
    return error_of(api, code, f"topic {name!r}" + (f": {message}" if message else ""), topics=[name]) if code else None
