"""Scripts: requests as data, sent the same way to a real broker and to the model.

A value in a request may be a function of the `Run`: a field of an earlier response (`got`), or a name of this run
(`named`).
"""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from pyclient.codec.apis import Api, VersionRange

Value: TypeAlias = Any  # a field, or Callable[[Run], field], at any depth of mappings and lists
Plain: TypeAlias = Any  # an answer as mappings, lists and plain values


@attrs.frozen(kw_only=True)
class Step:
    """One request and its answer."""

    api: Api
    name: str = ""
    """How `got` finds the answer."""
    fields: Mapping[str, Value] = attrs.field(factory=dict)
    since: int = 0
    """Left out in lower versions of the API."""
    until: int = 99
    version: int | None = None
    """This version; None is the one under test, or the newest of an API that is not."""
    announced: int | None = None
    """What the header says instead of the true version."""
    answered_in: int | None = None
    """The version of the answer, where it is another."""
    silent: bool = False
    """No answer is to come (acks=0)."""
    unsent: bool = False
    """Nothing is sent: the step reads what the broker does on its own."""
    on: str = "first"
    """Which connection; each name is one of its own."""
    later: bool = False
    """The answer is read by a `Receive` of this step's name."""
    ready: Callable[[Plain], bool] | None = None
    """A preparation: asked again until this holds, not compared."""
    shown: Callable[[Plain], Plain] = lambda answer: answer
    """The answer as it is compared; `got` finds it as it came."""


@attrs.frozen
class Receive:
    """Reads the answer of a step that was sent with ``later``."""

    name: str


@attrs.frozen
class Hangup:
    """Ends a connection, as a client does."""

    on: str


@attrs.frozen
class UntilCut:
    """Asks again, as fast as answers come, until the broker hangs up. Nothing of it is compared."""

    step: Step


Act: TypeAlias = Step | Receive | Hangup | UntilCut


@attrs.frozen(kw_only=True)
class Script:
    """What is done, once for each version of *api*."""

    name: str
    api: Api
    acts: tuple[Act, ...]
    since: int = 0
    until: int = 99


class Run:
    """What one run of a script knows: its names, and the answers so far."""

    def __init__(self, script: Script, version: int, turn: int = 0) -> None:
        self.script = script
        self.version = version
        self.turn = turn
        """How often the script ran before on these clusters (make flaky EACH=20): later turns have names of
        their own."""
        self.answers: dict[str, Plain] = {}
        self.began = time.time()

    def name(self, text: str) -> str:
        """A unique name; the same on both clusters."""
        return f"{text}.{self.script.name}.v{self.version}" + (f".{self.turn}" if self.turn else "")

    def resolve(self, value: Value) -> Any:
        """The value with its functions replaced."""
        if isinstance(value, Mapping):
            return {key: self.resolve(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.resolve(each) for each in value]
        return value(self) if callable(value) else value

    def version_of(self, step: Step, offered: Mapping[Api, VersionRange]) -> int:
        """The version this step is sent in."""
        if step.version is not None:
            return step.version
        return self.version if step.api is self.script.api else offered[step.api].high

    def left_out(self, step: Step, version: int) -> bool:
        """Whether this version has no such step."""
        return not step.since <= version <= step.until


def named(text: str) -> Callable[[Run], str]:
    """A name of this run."""
    return lambda run: run.name(text)


def got(step: str, *path: str | int) -> Callable[[Run], Any]:
    """What an earlier answer said."""
    def find(run: Run) -> Any:
        found = run.answers[step]
        for each in path:
            found = found[each]
        return found
    return find


def all_ok(answer: Plain) -> bool:
    """Whether no error code stands in the answer."""
    if isinstance(answer, Mapping):
        return all(value == "none" if key == ERROR_CODE else all_ok(value) for key, value in answer.items())
    return all(map(all_ok, answer)) if isinstance(answer, list) else True


ERROR_CODE: Final = "error_code"
