"""Calls: single requests with a caller that waits, such as admin operations, commits and coordinator look-ups.

A call names its target and interprets the response. This manager finds the node, retries within the call's deadline,
and ends each call exactly once.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import attrs

from pyclient.codec.apis import Api, VersionRange
from pyclient.core.backoff import WaitPolicy
from pyclient.core.manager import Outcome, Ready, Reply, Request, Unknown, Use, earliest
from pyclient.core.metadata import Metadata
from pyclient.core.acl_errors import error_of
from pyclient.core.silence import patience
from pyclient.errors import KafkaError, KafkaTimeoutError, UnknownServerError


class Anywhere(enum.Enum):
    """Targets that are not a particular node."""

    ANY_NODE = "any node"
    CONTROLLER = "the controller"


@attrs.frozen
class Coordinator:
    """The coordinator of a group."""

    group: str


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
    """The call is to be retried. With *elsewhere*, another broker is responsible: look it up first."""

    error: KafkaError
    elsewhere: bool = False


CallOutcome: TypeAlias = Done | Again | KafkaError
Finish: TypeAlias = Callable[[Any, BaseException | None], None]


@attrs.define(eq=False)
class Call:
    """One operation. *judge* interprets a response; *finish* is called once, with (result, None) or (None, error)."""

    what: str
    api: Api
    target: Target
    fields: Callable[[int], dict[str, object]]
    judge: Callable[[Any], CallOutcome]
    finish: Finish
    deadline: float | None
    use: Use | None = None  # None: the usual connection for its target
    versions: VersionRange | None = None  # narrower than those of the API
    once: bool = False  # retriable errors end it too: its caller sends another call then
    timeout: float | None = None  # seconds for one response; None: request_timeout_ms
    attempts: int = 0
    unheard: int = 0  # attempts in a row that got no response
    not_before: float = 0.0
    in_flight: bool = False
    node: int | None = None  # where it was sent last
    waits_since: float | None = None  # since when it waits for a node or its response; None during a back-off
    last_error: KafkaError | None = None


@attrs.define
class KnownCoordinator:
    """The node that coordinates a group, and when it last answered or was last looked up."""

    node: int
    heard_at: float


KEY_TYPE_GROUP: Final = 0
COORDINATORS_USES: Final = (Use.COORDINATION, Use.MEMBERSHIP)


class Calls:
    """The manager of all open calls."""

    def __init__(self, metadata: Metadata, *, request_timeout: float, backoff: WaitPolicy) -> None:
        self._metadata = metadata
        self._request_timeout = request_timeout
        self._backoff = backoff
        self._open: dict[Call, None] = {}  # in the order they were submitted
        self._patience = patience(request_timeout)
        self._coordinators: dict[str, KnownCoordinator] = {}
        self._finding: dict[str, Call] = {}
        self._replaced: list[int] = []  # former coordinators, which may not have answered everything
        self._now = 0.0

    def submit(self, call: Call) -> None:
        """Start a call. A response, its deadline, `cancel` or `close` ends it."""
        self._open[call] = None

    def cancel(self, call: Call) -> None:
        """Drop a call without calling its finish. A request that was sent may still be carried out."""
        if call in self._open:
            self._take_out(call)

    def close(self, error: KafkaError) -> None:
        """End every call with *error*."""
        for call in list(self._open):
            self._end(call, None, error)

    def poll(self, now: float, ready: Ready) -> Iterator[Request]:
        """Requests of the calls whose node is ready."""
        self._now = now
        while self._replaced:
            replaced = self._replaced.pop()
            for use in COORDINATORS_USES:
                ready.give_up(replaced, use)
        if not self._open:
            return
        seen: set[Call] = set()
        while fresh := [call for call in self._open if call not in seen]:  # the loop may add a coordinator look-up
            seen.update(fresh)
            for call in fresh:
                if call not in self._open:
                    continue  # another call ended it
                if call.deadline is not None and now >= call.deadline:
                    self._end(call, None, self._timeout(call))
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
            case Anywhere.ANY_NODE:
                return ready.least_loaded(Use.CONTROL)
            case Anywhere.CONTROLLER:
                return self._controller(ready)
            case Coordinator(group):
                return self._coordinator(group, now, ready, use or Use.COORDINATION)
            case Broker(node):
                return node if ready.slots(node, Use.CONTROL) else None

    def _controller(self, ready: Ready) -> int | None:
        node = self._metadata.cluster.controller
        if node is None:
            self._metadata.request_update()
            return None
        return node if ready.slots(node, Use.CONTROL) else None

    def _coordinator(self, group: str, now: float, ready: Ready, use: Use) -> int | None:
        known = self._coordinators.get(group)
        if known is None:
            self._find(group, not_before=0.0)
            return None
        node = known.node
        if node not in self._metadata.cluster.nodes:
            # It has left the cluster, or is newer than our view: refresh the view and look the coordinator up again,
            # with a back-off, so that neither is repeated at the network's speed.
            self._metadata.request_update()
            del self._coordinators[group]
            self._find(group, not_before=now + self._backoff.after(1))
            return None
        return node if ready.slots(node, use) else None

    def _find(self, group: str, *, not_before: float) -> None:
        if group not in self._finding:
            call = self._finding[group] = find_coordinator(group, self._found)
            call.not_before = not_before
            self.submit(call)

    def _found(self, group: str, node: int | None, error: BaseException | None) -> None:
        self._finding.pop(group, None)
        if node is not None:
            before = self._coordinators.get(group)
            if before is not None and before.node != node:
                self._replaced.append(before.node)
            self._coordinators[group] = KnownCoordinator(node, self._now)
        elif isinstance(error, KafkaError):
            for call in [each for each in self._open if each.target == Coordinator(group)]:
                self._end(call, None, error)

    def _doubt_coordinator(self, now: float, call: Call) -> None:
        """G04: a coordinator that does not answer may have been replaced. Look it up while its answer is awaited."""
        due = self._doubt_at(call)
        if due is not None and now >= due and isinstance(call.target, Coordinator):
            self._find(call.target.group, not_before=0.0)

    def _doubt_at(self, call: Call) -> float | None:
        if call.waits_since is None or not isinstance(call.target, Coordinator) or call.target.group in self._finding:
            return None
        known = self._coordinators.get(call.target.group)
        if known is None:
            return None
        # JoinGroup and SyncGroup may rightly take long: a hung coordinator looks the same.
        return max(call.waits_since, known.heard_at) + self._patience * (2 if call.use is Use.MEMBERSHIP else 1)

    # ---- outcomes ---------------------------------------------------------------------------------------------------

    def _request(self, now: float, call: Call, node: int) -> Request:
        call.in_flight, call.node, call.waits_since = True, node, now
        usual = Use.COORDINATION if isinstance(call.target, Coordinator) else Use.CONTROL
        return Request(
            node=node, use=call.use or usual, api=call.api, fields=call.fields, timeout=call.timeout or self._request_timeout,
            held=None if call.use is Use.MEMBERSHIP else 0.0,
            patience=patience(self._request_timeout, call.unheard) if call.target is Anywhere.ANY_NODE else None, versions=call.versions, done=lambda now, outcome: self._answered(now, call, outcome))

    def _answered(self, now: float, call: Call, outcome: Outcome) -> None:
        self._now = now
        call.in_flight, call.waits_since = False, None
        self._heard(now, call, outcome)
        if call not in self._open:
            return
        match self._outcome(call, outcome):
            case Done(result):
                self._end(call, result, None)
            case Again(error, elsewhere):
                if elsewhere:
                    self._lose(call)
                if call.once:
                    self._end(call, None, error)
                else:
                    self._pause(now, call, error)
            case KafkaError() as error:
                self._end(call, None, error)

    def _outcome(self, call: Call, outcome: Outcome) -> CallOutcome:
        if isinstance(outcome, Reply):
            return call.judge(outcome.message)
        return Again(outcome.cause, elsewhere=True) if outcome.cause.retriable else outcome.cause

    def _heard(self, now: float, call: Call, outcome: Outcome) -> None:
        call.unheard = call.unheard + 1 if isinstance(outcome, Unknown) else 0
        known = self._coordinators.get(call.target.group) if isinstance(call.target, Coordinator) else None
        if known is not None and known.node == call.node and isinstance(outcome, Reply):
            known.heard_at = now

    def _lose(self, call: Call) -> None:
        """Another broker is responsible: forget the known one, unless it was found meanwhile."""
        known = self._coordinators.get(call.target.group) if isinstance(call.target, Coordinator) else None
        if known is not None and known.node == call.node and isinstance(call.target, Coordinator):
            del self._coordinators[call.target.group]
        self._metadata.request_update()

    def _pause(self, now: float, call: Call, error: KafkaError) -> None:
        call.attempts += 1
        call.last_error = error
        call.not_before = now + self._backoff.after(call.attempts, error)

    def _end(self, call: Call, result: Any, error: BaseException | None) -> None:
        if call in self._open:
            self._take_out(call)
            call.finish(result, error)

    def _take_out(self, call: Call) -> None:
        """Remove a call, and the coordinator look-up when no other call waits for it."""
        del self._open[call]
        target = call.target
        if isinstance(target, Coordinator) and not any(each.target == target for each in self._open):
            search = self._finding.pop(target.group, None)
            if search is not None:
                self._open.pop(search, None)

    def _timeout(self, call: Call) -> KafkaError:
        cause = call.last_error or self._metadata.last_error
        tried = f"tried {call.attempts} times, last error: {cause}" if call.attempts else f"no broker was ready: {cause or 'none answered'}"
        return KafkaTimeoutError(
            f"{call.what} did not finish within its timeout ({tried}). It may or may not have been carried out. "
            "Check the brokers, or use a longer timeout.")


def find_coordinator(group: str, found: Callable[[str, int | None, BaseException | None], None]) -> Call:
    """The call that finds the coordinator of *group* through any broker; it is retried until one knows."""

    def fields(version: int) -> dict[str, object]:
        if version >= 4:
            return {"key_type": KEY_TYPE_GROUP, "coordinator_keys": (group,)}
        return {"key": group, "key_type": KEY_TYPE_GROUP}

    def judge(message: Any) -> CallOutcome:
        answers = getattr(message, "coordinators", (message,))  # a list since version 4
        if not answers:
            return Again(UnknownServerError(f"the response lacks group {group!r}"))
        answer = answers[0]
        if not answer.error_code:
            return Done(answer.node_id)
        said = getattr(answer, "error_message", None)  # since version 1
        error = error_of(Api.FIND_COORDINATOR, answer.error_code, f"group {group!r}: {said}" if said else f"group {group!r}", group=group)
        return Again(error) if error.retriable else error

    return Call(
        what=f"finding the coordinator of group {group!r}", api=Api.FIND_COORDINATOR, target=Anywhere.ANY_NODE, fields=fields,
        judge=judge, finish=lambda node, error: found(group, node, error), deadline=None)
