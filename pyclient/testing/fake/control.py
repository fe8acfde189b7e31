"""Interception: what a test or a fault plan does to requests before the model answers them."""
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
    """Answer with this error code wherever the API has a place for one; the model does not see the request."""

    code: int


@attrs.frozen
class Delay:
    """Let the model answer after so many seconds. Requests of the same connection wait behind it."""

    seconds: float


@attrs.frozen
class Drop:
    """Cut the connection instead of answering: before the model sees the request, or after it was *applied*."""

    applied: bool = False


@attrs.frozen
class Cut:
    """Apply the request, write the first *keep* bytes of the answer's frame, and cut the connection."""

    keep: int


@attrs.frozen
class Silence:
    """Never answer; the connection stays open. *applied*: the model sees the request all the same."""

    applied: bool = False


@attrs.frozen
class Throttle:
    """Answer with this throttle time in ms (KIP-219): the client is to keep silent so long. Answers that have no such field do not ask for it."""

    ms: int


Verdict: TypeAlias = Answer | Fail | Delay | Drop | Cut | Silence | Throttle
Decide: TypeAlias = Callable[[Request], Verdict | None]
"""None lets the request pass: to observe is to return None."""


@attrs.define(eq=False)
class Rule:
    """One interception; `remove` ends it."""

    decide: Decide
    api: Api | None
    broker: int | None
    left: int | None
    rules: list[Rule]
    hits: int = 0
    """How many requests it decided about."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Intercept no more. Calling again does nothing."""
        if self in self.rules:
            self.rules.remove(self)

    def verdict(self, request: Request) -> Verdict | None:
        """What to do with this request; each verdict but None uses the rule once."""
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
    """The rules of one cluster; the first one, in the order of adding, that says something decides."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def intercept(self, decide: Decide | Verdict, *, api: Api | None = None, broker: int | None = None,
                  times: int | None = None) -> Rule:
        """Do this to requests of an API (None: all) at a broker (None: any), so many times (None: until removed)."""
        chosen: Decide = decide if callable(decide) else lambda _request: decide
        rule = Rule(chosen, api, broker, times, self._rules)
        self._rules.append(rule)
        return rule

    def verdict(self, request: Request) -> Verdict | None:
        """What is to be done with this request; None is nothing."""
        for rule in list(self._rules):
            verdict = rule.verdict(request)
            if verdict is not None:
                return verdict
        return None
