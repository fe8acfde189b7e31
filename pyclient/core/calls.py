"""Calls: single requests with a caller that waits, such as admin operations, commits and coordinator look-ups.

A call names its target and interprets the response. This manager finds the node, retries within the call's deadline,
and ends each call exactly once.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.backoff import Backoff
from pyclient.core.controllers import not_of_controllers
from pyclient.core.manager import Manager, Outcome, Ready, Reply, Request, Unknown, Use, earliest
from pyclient.core.metadata import Metadata
from pyclient.core.acl_errors import error_of
from pyclient.core.silence import silence_timeout_s
from pyclient.errors import KafkaError, KafkaTimeoutError, ProtocolError, UnknownServerError


class Anywhere(enum.Enum):
    """Targets that are not a particular node."""

    ANY_NODE = "any node"
    CONTROLLER = "the controller"


class KeyType(enum.IntEnum):
    """What a coordinator coordinates, as FindCoordinator numbers it."""

    GROUP = 0
    TRANSACTION = 1


class Coordinator(NamedTuple):
    """The coordinator of a group, or of a transactional id. A tuple: each call looks some up, and those hash in C."""

    key: str
    kind: KeyType = KeyType.GROUP

    def __str__(self) -> str:
        return f"group {self.key!r}" if self.kind is KeyType.GROUP else f"transactional id {self.key!r}"


@attrs.frozen
class Broker:
    """A particular broker."""

    node: int


Target: TypeAlias = Anywhere | Coordinator | Broker


@attrs.frozen
class Done:
    """The call succeeded with this result."""

    result: Any


@attrs.frozen
class Again:
    """The call is to be retried. With *elsewhere*, another broker is responsible: look it up first.

    *pause*, in seconds, replaces the back-off.
    """

    error: KafkaError
    elsewhere: bool = False
    pause: float | None = None


CallOutcome: TypeAlias = Done | Again | KafkaError
Finish: TypeAlias = Callable[[Any, BaseException | None], object]
"""Returns True when no manager has anything to do because of it."""


@attrs.define(eq=False)
class Call:
    """One operation. *classify* interprets a response; *finish* is called once, with (result, None) or (None,
    error)."""

    what: str
    api: Api
    target: Target
    fields: Callable[[int], dict[str, object]]
    classify: Callable[[Any], CallOutcome]
    finish: Finish
    deadline: float | None
    use: Use | None = None  # None: the usual connection for its target
    versions: VersionRange | None = None  # narrower than those of the API
    once: bool = False  # retriable errors end it too: its caller sends another call then
    timeout: float | None = None  # seconds for one response; None: request_timeout_ms
    silence_timeout_s: float = 0.0  # at least so many seconds pass before its coordinator is doubted
    attempts: int = 0
    unheard: int = 0  # attempts in a row that got no response
    not_before: float = 0.0
    in_flight: bool = False
    node: int | None = None  # where it was sent last
    sent_at: float = 0.0  # last
    waits_since: float | None = None  # since when it waits for a node or its response; None during a back-off
    last_error: KafkaError | None = None


@attrs.define
class KnownCoordinator:
    """The node of a coordinator, and when it last answered or was last looked up."""

    node: int
    last_response_at: float


KEY_TYPES_SINCE: Final = 1
"""FindCoordinator has no key type before: it finds groups only."""
COORDINATORS_USES: Final = (Use.COORDINATION, Use.MEMBERSHIP)


class Calls(Manager):
    """The manager of all open calls."""

    def __init__(self, metadata: Metadata, *, request_timeout: float, backoff: Backoff) -> None:
        self._metadata = metadata
        self._request_timeout = request_timeout
        self._backoff = backoff
        self._open: dict[Call, None] = {}  # in the order they were submitted
        self._silence_timeout_s = silence_timeout_s(request_timeout)
        self._coordinators: dict[Coordinator, KnownCoordinator] = {}
        self._finding: dict[Coordinator, Call] = {}
        self._replaced: list[int] = []  # former coordinators, which may not have answered everything
        self._now = 0.0
        self.needs_poll = True

    def took(self, call: Call) -> float:
        """Seconds from its last request to the event that is being handled."""
        return self._now - call.sent_at

    def submit(self, call: Call) -> None:
        """Start a call. A response, its deadline, `cancel` or `close` ends it; at once if it needs brokers, and this
        client is bound to controllers.
        """
        self._open[call] = None
        self.needs_poll = True
        if self._metadata.of_controllers and (error := not_of_controllers(call.api, call.what)) is not None:
            self._end(call, None, error)

    def cancel(self, call: Call) -> None:
        """Drop a call without calling its finish. A request that was sent may still be carried out."""
        if call in self._open:
            self._take_out(call)
            self.needs_poll = True

    def close(self, error: KafkaError) -> None:
        """End every call with *error*."""
        for call in list(self._open):
            self._end(call, None, error)

    def poll(self, now: float, ready: Ready) -> Iterator[Request]:
        """Requests of the calls whose node is ready."""
        self._now, self.needs_poll = now, False
        while self._replaced:
            replaced = self._replaced.pop()
            for use in COORDINATORS_USES:
                ready.give_up(replaced, use)
        if not self._open:
            return
        seen: set[Call] = set()
        while fresh := [call for call in self._open if call not in seen]:  # the body may add a coordinator look-up
            seen.update(fresh)
            for call in fresh:
                if call not in self._open:
                    continue  # another call ended it
                if call.deadline is not None and now >= call.deadline:
                    self._end(call, None, self._timeout(call))
                elif self._metadata.refused is not None and not call.in_flight:
                    self._end(call, None, self._metadata.refused)
                elif not call.in_flight and now >= call.not_before:
                    call.not_before = 0.0  # the back-off is over: now it waits for a node, not for the clock
                    node = self._locate(call.target, now, ready, call.use)
                    if node is not None:
                        yield self._request(now, call, node)
                    elif call.waits_since is None:
                        call.waits_since = now
                self._doubt_coordinator(now, call)

    def next_deadline(self) -> float | None:
        """The earliest deadline of a call, or end of its back-off."""
        return earliest(*[self._deadline(call) for call in self._open]) if self._open else None

    def _deadline(self, call: Call) -> float | None:
        return earliest(call.deadline, call.not_before if call.not_before and not call.in_flight else None, self._doubt_at(call))

    # ---- the node ---------------------------------------------------------------------------------------------------

    def _locate(self, target: Target, now: float, ready: Ready, use: Use | None) -> int | None:
        match target:
            case Anywhere.ANY_NODE if not self._metadata.of_controllers:  # of controllers, only the active one knows all
                return ready.least_loaded(Use.CONTROL)
            case Anywhere():
                return self._controller(ready)
            case Coordinator():
                return self._coordinator(target, now, ready, use or Use.COORDINATION)
            case Broker(node):
                return self._broker(node, ready)

    def _broker(self, node: int, ready: Ready) -> int | None:
        if node not in self._metadata.cluster.nodes:
            self._metadata.request_update()  # it is newer than this view, or has left the cluster
            return None
        return node if ready.slots(node, Use.CONTROL) else None

    def _controller(self, ready: Ready) -> int | None:
        node = self._metadata.cluster.controller
        if node is None:
            self._metadata.request_update()
            return None
        return node if ready.slots(node, Use.CONTROL) else None

    def _coordinator(self, target: Coordinator, now: float, ready: Ready, use: Use) -> int | None:
        known = self._coordinators.get(target)
        if known is None:
            self._find(target, not_before=0.0)
            return None
        node = known.node
        if node not in self._metadata.cluster.nodes:
            # It has left the cluster, or is newer than our view: refresh the view and look the coordinator up again,
            # with a back-off, so that neither is repeated at the network's speed.
            self._metadata.request_update()
            del self._coordinators[target]
            self._find(target, not_before=now + self._backoff.after(1))
            return None
        return node if ready.slots(node, use) else None

    def _find(self, target: Coordinator, *, not_before: float) -> None:
        if target not in self._finding:
            call = self._finding[target] = find_coordinator(target, self._found)
            call.not_before = not_before
            self.submit(call)

    def _found(self, target: Coordinator, node: int | None, error: BaseException | None) -> None:
        self._finding.pop(target, None)
        if node is not None:
            before = self._coordinators.get(target)
            if before is not None and before.node != node:
                self._replaced.append(before.node)
            self._coordinators[target] = KnownCoordinator(node, self._now)
        elif isinstance(error, KafkaError):
            for call in [each for each in self._open if each.target == target]:
                self._end(call, None, error)

    def _doubt_coordinator(self, now: float, call: Call) -> None:
        """G04: a coordinator that does not answer may have been replaced. Look it up while its answer is awaited."""
        due = self._doubt_at(call)
        if due is not None and now >= due and isinstance(call.target, Coordinator):
            self._find(call.target, not_before=0.0)

    def _doubt_at(self, call: Call) -> float | None:
        if call.waits_since is None or not isinstance(call.target, Coordinator) or call.target in self._finding:
            return None
        known = self._coordinators.get(call.target)
        if known is None:
            return None
        # JoinGroup and SyncGroup may rightly take long: a hung coordinator looks the same.
        return max(call.waits_since, known.last_response_at) + max(call.silence_timeout_s, self._silence_timeout_s * (2 if call.use is Use.MEMBERSHIP else 1))

    # ---- outcomes ---------------------------------------------------------------------------------------------------

    def _request(self, now: float, call: Call, node: int) -> Request:
        call.in_flight, call.node, call.waits_since, call.sent_at = True, node, now, now
        usual = Use.COORDINATION if isinstance(call.target, Coordinator) else Use.CONTROL
        return Request(
            node=node, use=call.use or usual, api=call.api, fields=call.fields, timeout=call.timeout or self._request_timeout,
            held=None if call.use is Use.MEMBERSHIP else 0.0,
            silence_timeout_s=silence_timeout_s(self._request_timeout, call.unheard) if call.target is Anywhere.ANY_NODE else None, versions=call.versions, done=lambda now, outcome: self._answered(now, call, outcome))

    def _answered(self, now: float, call: Call, outcome: Outcome) -> bool:
        """Returns whether the call has ended and nothing is to be done because of it."""
        self._now = now
        call.in_flight, call.waits_since = False, None
        self._heard(now, call, outcome)
        if call not in self._open:
            return False
        match self._outcome(call, outcome):
            case Done(result):
                return self._end(call, result, None) and not self._open
            case Again(error, elsewhere, pause):
                if elsewhere or self._metadata.of_controllers:  # another one may be active
                    self._lose(call)
                if call.once:
                    self._end(call, None, error)
                else:
                    self._pause(now, call, error, pause)
            case KafkaError() as error:
                self._end(call, None, error)
        return False

    def _outcome(self, call: Call, outcome: Outcome) -> CallOutcome:
        if isinstance(outcome, Reply):
            return _classified(call, outcome.message)
        return Again(outcome.cause, elsewhere=True) if outcome.cause.retriable else outcome.cause

    def _heard(self, now: float, call: Call, outcome: Outcome) -> None:
        call.unheard = call.unheard + 1 if isinstance(outcome, Unknown) else 0
        known = self._coordinators.get(call.target) if isinstance(call.target, Coordinator) else None
        if known is not None and known.node == call.node and isinstance(outcome, Reply):
            known.last_response_at = now

    def _lose(self, call: Call) -> None:
        """Another broker is responsible: forget the known one, unless it was found meanwhile."""
        known = self._coordinators.get(call.target) if isinstance(call.target, Coordinator) else None
        if known is not None and known.node == call.node and isinstance(call.target, Coordinator):
            del self._coordinators[call.target]
        self._metadata.request_update()

    def _pause(self, now: float, call: Call, error: KafkaError, pause: float | None) -> None:
        call.attempts += 1
        call.last_error = error
        call.not_before = now + (self._backoff.after(call.attempts, error) if pause is None else pause)

    def _end(self, call: Call, result: Any, error: BaseException | None) -> bool:
        """Returns whether nothing is to be done because of it."""
        if call not in self._open:
            return False
        self._take_out(call)
        return call.finish(result, error) is True

    def _take_out(self, call: Call) -> None:
        """Remove a call, and the coordinator look-up when no other call waits for it."""
        del self._open[call]
        target = call.target
        if isinstance(target, Coordinator) and not any(each.target == target for each in self._open):
            search = self._finding.pop(target, None)
            if search is not None:
                self._open.pop(search, None)

    def _timeout(self, call: Call) -> KafkaError:
        cause = call.last_error or self._metadata.last_error
        tried = [f"tried {call.attempts} times, last error: {cause}"] if call.attempts else []
        waits = [f"node {call.node} has not answered"] if call.in_flight else []
        why = "; ".join(tried + waits) or f"no broker was ready: {cause or 'none answered'}"
        return KafkaTimeoutError(
            f"{call.what} did not finish within its timeout ({why}). It may or may not have been carried out. "
            "Check the brokers, or use a longer timeout.")


def _classified(call: Call, message: Any) -> CallOutcome:
    """What an answer means. It raises where it is none to the request: the next one would be the same."""
    try:
        return call.classify(message)
    except KafkaError as error:
        return error
    except Exception as error:  # noqa: BLE001 raised to the waiting caller
        failed = ProtocolError(f"{call.what}: the broker's answer is none to this {call.api.title} request ({error!r})")
        failed.__cause__ = error
        return failed


def find_coordinator(target: Coordinator, found: Callable[[Coordinator, int | None, BaseException | None], None]) -> Call:
    """The call that finds the coordinator *target* through any broker; it is retried until one knows."""

    def fields(version: int) -> dict[str, object]:
        return {"key_type": target.kind, **({"coordinator_keys": (target.key,)} if version >= 4 else {"key": target.key})}

    return Call(
        what=f"finding the coordinator of {target}", api=Api.FIND_COORDINATOR, target=Anywhere.ANY_NODE, fields=fields,
        classify=lambda message: _coordinator_found(target, message), finish=lambda node, error: found(target, node, error), deadline=None,
        versions=None if target.kind is KeyType.GROUP else VersionRange(KEY_TYPES_SINCE, SPOKEN[Api.FIND_COORDINATOR].high))


def _coordinator_found(target: Coordinator, message: Any) -> CallOutcome:
    answers = getattr(message, "coordinators", (message,))  # a list since version 4
    if not answers:
        return Again(UnknownServerError(f"the response lacks {target}"))
    answer = answers[0]
    if not answer.error_code:
        return Done(answer.node_id)
    said = getattr(answer, "error_message", None)  # since version 1
    error = error_of(Api.FIND_COORDINATOR, answer.error_code, f"{target}: {said}" if said else str(target), group=target.key, transactional_id=target.key)
    return Again(error) if error.retriable else error
