"""Deliberate bugs of the reactor, its tasks and channels, and of the portals: most in compiled code."""
from __future__ import annotations

from typing import Any, Final

from pyclient.testing.simulation.invariants import TRANSACTIONS
from tests.simulation.mutation import Museum, Target, nothing
from tests.simulation.situations import AREAS, speaks_tls

MUSEUM: Final = Museum(situations=AREAS)
OF_CHAINS: Final = Museum(TRANSACTIONS)
"""Only their workers are cancelled in the middle of calls."""
bug = MUSEUM.bug
rewrite = MUSEUM.rewrite
REACTOR: Final = "pyclient.reactor.reactor:Reactor"
TASKS: Final = "pyclient.reactor.tasks"
CHANNELS: Final = "pyclient.reactor.channels"
LOOP_POLLER: Final = "pyclient.reactor.loop_poller:LoopPoller"
PORTALS: Final = "pyclient.runtime.portals"
this_thread: Any = None
"""What compiled bodies take from their modules."""
INFINITY = float("inf")
CancelledError: Any = None

# --- the reactor -----------------------------------------------------------------------------------------------------


@rewrite("reactor", "callbacks of a step run in reverse", "callbacks run in the order in which they came", f"{REACTOR}.call_soon")
def _(self: Any, callback: Any) -> None:
    if self._leader == this_thread():
        self._soon.appendleft(callback)
        return
    with self._mutex:
        self._posted.append(callback)
    self._lead_posted()


@rewrite("reactor", "a posted call waits for the next event", "a posted call runs if no thread leads", f"{REACTOR}.call_soon")
def _(self: Any, callback: Any) -> None:
    if self._leader == this_thread():
        self._soon.append(callback)
        return
    with self._mutex:
        self._posted.append(callback)


@rewrite("reactor", "an earlier deadline does not reach the poller", "Java 20780: stuck", f"{REACTOR}._set_deadline")
def _(self: Any) -> Any:
    timers = self._timers
    first = timers[0][0] if timers else INFINITY
    if first != INFINITY and (self._deadline == INFINITY or self._deadline <= self.clock()):
        self._deadline = first
        self.poller.set_deadline(first)


@rewrite("reactor", "a cancelled timer runs", "a cancelled timer does not run", "pyclient.reactor.reactor:Timer.cancel")
def _(self: Any) -> None:
    pass


# --- tasks -----------------------------------------------------------------------------------------------------------


@rewrite("tasks", "a timeout cancels nothing", "every call ends in time", f"{TASKS}:Timeout._expire")
def _(self: Any) -> None:
    self._timer = None
    self._expired = True


@rewrite("tasks", "a timeout leaves its timer", "nothing is left after close", f"{TASKS}:Timeout._disarm")
def _(self: Any) -> Any:
    self._timer = None


@rewrite("tasks", "a timeout is a cancellation to its caller", "asyncio.timeout", f"{TASKS}:Timeout.__aexit__")
async def _(self: Any, kind: Any, error: Any, trace: Any) -> None:
    self._disarm()
    self._task = None


@rewrite("tasks", "a task that waits is not cancelled", "asyncio: Task.cancel", f"{TASKS}:Task.cancel")
def _(self: Any) -> bool:
    if self._done:
        return False
    self._cancel_requests += 1
    self._must_cancel = True
    return True


# --- channels and pollers --------------------------------------------------------------------------------------------


@bug("channels", "what was taken in part counts as taken", "a frame reaches the peer whole", f"{CHANNELS}:_drop_sent")
def _(_original: Target) -> Target:
    def drop(pieces: Any, sent: int) -> None:
        while pieces and sent > 0:
            sent -= len(pieces.popleft())
    return drop


@bug("channels", "what was taken in part is written again from its begin", "a frame reaches the peer once", f"{CHANNELS}:_drop_sent")
def _(_original: Target) -> Target:
    def drop(pieces: Any, sent: int) -> None:
        while pieces and sent >= len(pieces[0]):
            sent -= len(pieces.popleft())
    return drop


bug("channels", "room to write is not waited for", "requests that stay in the client", f"{LOOP_POLLER}.arm")(nothing)

@bug("channels", "encrypted bytes that the socket refuses are forgotten", "a frame reaches the peer whole",
     "pyclient.reactor.tls_channel:TlsChannel._flush", speaks_tls)
def _(original: Target) -> Target:
    def flush(self: Any) -> bool:
        original(self)
        self._encrypted.clear()
        return True
    return flush


@bug("channels", "the socket's room to write is reported for ever", "busy loops", f"{LOOP_POLLER}._writable")
def _(_original: Target) -> Target:
    from pyclient.reactor.pollers import WRITABLE

    return lambda self, descriptor: self._step(((self._sinks[descriptor], WRITABLE),))


@bug("channels", "a closed socket is watched on", "descriptors that are used again", f"{LOOP_POLLER}.unregister")
def _(_original: Target) -> Target:
    return lambda self, token: self._sinks.pop(token, None)


# --- portals ---------------------------------------------------------------------------------------------------------

OF_CHAINS.bug("portals", "a cancelled call goes on", "a cancellation goes on to the client", f"{PORTALS}:Call._cancel_task")(nothing)


@OF_CHAINS.bug("portals", "a call whose task was cancelled never ends", "S09: no call waits for ever", f"{PORTALS}:Call._end")
def _(original: Target) -> Target:
    def end(self: Any, ended: Any = None) -> None:
        if ended is None or not ended.cancelled():
            original(self, ended)
    return end
