"""Interception of requests by tests and fault plans, before the model answers them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeAlias

import attrs

from pyclient.codec.apis import Api
from pyclient.testing.fake.model.request import Request, Fields


@attrs.frozen
class Answer:
    """Answer with these fields; the model does not see the request."""

    fields: Fields


@attrs.frozen
class Fail:
    """Answer with this code in every error field of the API; the model does not see the request."""

    code: int


@attrs.frozen
class Delay:
    """Let the model answer after a delay in seconds. Later requests of the connection wait."""

    seconds: float


@attrs.frozen
class Drop:
    """Cut the connection instead of answering: before the model handles the request, or after (*applied*)."""

    applied: bool = False


@attrs.frozen
class Cut:
    """Apply the request, write the first *keep* bytes of the answer's frame, and cut the connection."""

    keep: int


@attrs.frozen
class Silence:
    """Never answer; the connection stays open. With *applied* the model still handles the request."""

    applied: bool = False


@attrs.frozen
class Throttle:
    """Answer with this throttle time in ms (KIP-219), in responses that have the field."""

    ms: int


@attrs.frozen
class Change:
    """Apply the request, and send what *change* makes of the answer's fields."""

    change: Callable[[Fields], Fields]


@attrs.frozen
class Bytes:
    """Send these bytes; the model does not see the request. *framed*: as the body of the response."""

    data: bytes
    framed: bool = False


Verdict: TypeAlias = Answer | Fail | Delay | Drop | Cut | Silence | Throttle | Change | Bytes
Decide: TypeAlias = Callable[[Request], Verdict | None]
"""None lets the request pass: return None to observe only."""


@attrs.define(eq=False)
class Rule:
    """One interception; `remove` ends it."""

    decide: Decide
    api: Api | None
    broker: int | None
    left: int | None
    rules: list[Rule]
    hits: int = 0
    """Number of requests it decided."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """End the interception. Calling again does nothing."""
        if self in self.rules:
            self.rules.remove(self)

    def verdict(self, request: Request) -> Verdict | None:
        """The verdict on this request; each one but None uses the rule once."""
        if self.api not in (None, request.api) or self.broker not in (None, request.broker):
            return None
        verdict = self.decide(request)
        if verdict is not None:
            self._hit()
        return verdict

    def _hit(self) -> None:
        self.hits += 1
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.remove()


class Control:
    """The rules of one cluster; the oldest one that returns a verdict decides."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def intercept(self, decide: Decide | Verdict, *, api: Api | None = None, broker: int | None = None,
                  times: int | None = None) -> Rule:
        """Add a rule for an API (None: all) at a broker (None: any), for some *times* (None: until removed)."""
        chosen: Decide = decide if callable(decide) else lambda _request: decide
        rule = Rule(chosen, api, broker, times, self._rules)
        self._rules.append(rule)
        return rule

    def verdict(self, request: Request) -> Verdict | None:
        """The verdict on this request; None lets it pass."""
        for rule in list(self._rules):
            verdict = rule.verdict(request)
            if verdict is not None:
                return verdict
        return None
