# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The reactor: events of sockets, deadlines and posted calls, handled by one thread at a time.

Leader and followers: a thread that needs an answer sleeps in the poller, and leads when it wakes. The leader's lock
protects what steps change; it is never held in a sleep. In the poller sleeps one caller that waits; further callers
wait at their own gates, and one of them goes to the poller when the first has left. The background thread sleeps there
when no caller does; it stands aside for some milliseconds more. An async client's loop leads instead, and so does a
simulation.

Rules: callbacks run one after the other, in the order in which they came. A call that is posted runs in the poster's
thread if no thread leads, else in the leader's, before that lets go. Who ends a wait opens the waiter's gate or wakes
the poller: which sleeper the system wakes does not matter. Exceptions that signal handlers or other threads raise into
a leader come out when its step is over.
"""
import cython
from cython.cimports.cpython.exc import PyErr_CheckSignals
from cython.cimports.libc.math import INFINITY
from cython.cimports.pyclient.clocks import seconds_of
from cython.cimports.pyclient.reactor.deferred_exceptions import Deferral, begin_deferral, end_deferral
from cython.cimports.pyclient.reactor.standing_aside import call_back, caller_came, caller_left, free_aside, make_aside, stand_aside
from cython.cimports.pyclient.reactor.reactor import (
    PY_LOCK_INTR, PyThread_type_lock, calls_left, free_lock, new_lock, release_lock, take_lock, take_lock_within, this_thread,
)

import heapq
import logging
import time
from collections import deque

from pyclient.errors import IllegalStateError

_log = logging.getLogger("pyclient.reactor")
_push, _pop, _heapify = heapq.heappush, heapq.heappop, heapq.heapify
LONGEST_S = cython.declare(cython.double, 1e6)
MOST_ROUNDS = cython.declare(cython.int, 16)
"""How often a leader goes on with what others have posted, before it leaves that to the next one."""
MOST_PASSES = cython.declare(cython.int, 64)
"""Of a step: a user's loop has other work too, and other threads wait for the lock."""
PASSES_AFTER_END = cython.declare(cython.int, 1)
"""How many more passes a caller leads whose wait is over: they answer what ended it, the next fetch for instance."""
MOST_CANCELLED = cython.declare(cython.int, 100)
MOST_TAKEN = cython.declare(cython.Py_ssize_t, 1000)
ASIDE_S = 0.0001
MOST_NESTED = cython.declare(cython.int, 200)
"""Calls of interpreted code that a step may nest. A RecursionError in it would leave what it changes half changed."""


@cython.final
@cython.cclass
class Queue:
    """First in, first out. The fields are declared in reactor.pxd."""

    def __init__(self):
        self._items = []

    @cython.cfunc
    def put(self, item: object) -> object:
        self._items.append(item)

    @cython.cfunc
    def take(self) -> object:
        """The first one; there must be one."""
        items = self._items
        if len(items) == 1:
            return items.pop()
        item = items[self._taken]
        items[self._taken] = None
        self._taken += 1
        if self._taken == len(items) or self._taken >= MOST_TAKEN:  # or else, never empty, it would keep them
            del items[:self._taken]
            self._taken = 0
        return item

    @cython.cfunc
    @cython.exceptval(check=False)
    def count(self) -> cython.Py_ssize_t:
        return len(self._items) - self._taken


@cython.final
@cython.cclass
class Waiter:
    """One wait of a caller, until `end` is called. The fields are declared in reactor.pxd."""

    def __dealloc__(self):
        if self._gate != cython.NULL:
            if not self._open:
                release_lock(self._gate)
            free_lock(self._gate)

    def __init__(self, reactor: Reactor):
        self._reactor = reactor

    def end(self, _=None):
        """What the caller waits for has come. Any thread may call it."""
        self._end()

    def __call__(self):
        """As `end`, which it is as a callback."""
        self._end()

    @cython.cfunc
    def _end(self) -> object:
        if self._reactor._leader == this_thread():
            self.done = True
            self.let_through()
        else:
            self._reactor.call_soon(self)

    @cython.cfunc
    def let_through(self) -> object:
        """Let the caller look again, if it waits at its gate."""
        with cython.critical_section(self._reactor):
            if not self._open:
                self._open = True
                if self._gate != cython.NULL:
                    release_lock(self._gate)

    @cython.cfunc
    def _make_gate(self) -> object:
        """Only followers need one."""
        if self._gate != cython.NULL:
            return
        gate: PyThread_type_lock = new_lock()
        if gate == cython.NULL:
            raise MemoryError
        take_lock(gate, 0)
        with cython.critical_section(self._reactor):
            if self._open:
                release_lock(gate)
            self._gate = gate

    @cython.cfunc
    def wait(self, timeout: cython.double) -> object:
        """Until `let_through`, a signal, or for so long."""
        self._make_gate()
        limit: cython.longlong = -1 if timeout >= LONGEST_S else cython.cast(cython.longlong, timeout * 1e6) + 1
        with cython.nogil:
            status = take_lock_within(self._gate, limit, 1)
        if status == PY_LOCK_INTR:
            PyErr_CheckSignals()
        elif status:
            with cython.critical_section(self._reactor):
                self._open = False


@cython.final
@cython.cclass
class Timer:
    """A callback that runs at a time. The fields are declared in reactor.pxd."""

    def cancel(self):
        """Let it not run. Call it in a step."""
        if self.callback is not None:
            self.callback = None
            if self._waits:
                self._reactor._timer_cancelled()

    def cancelled(self):
        """Whether it was cancelled, or has run."""
        return self.callback is None

    def __call__(self):
        """Run, unless a callback of the same pass has cancelled it."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


@cython.final
@cython.cclass
class Reactor:
    """*defers*: exceptions that are raised into this thread from outside come out behind its step.

    The fields are declared in reactor.pxd.
    """

    def __cinit__(self):
        self._lock = new_lock()
        if self._lock == cython.NULL or make_aside(cython.address(self._aside)):
            raise MemoryError

    def __dealloc__(self):
        free_aside(cython.address(self._aside))
        if self._lock != cython.NULL:
            free_lock(self._lock)

    def __init__(self, poller, clock=time.monotonic, defers=False):
        self.poller, self.clock, self._defers = poller, clock, defers
        self._notify, self._shared, self._stands_aside = poller.wake, poller.shared, poller.wakes_any
        self._events, self._soon, self._posted, self._timers, self._followers = Queue(), Queue(), [], [], deque()
        self._deadline = INFINITY

    def bind(self, notify):
        """From now on only the calling thread leads; *notify* makes it call `step` soon, and may be called by any."""
        self._bound, self._notify = this_thread(), notify

    # ---- from any thread --------------------------------------------------------------------------------------------

    @cython.ccall
    def call_soon(self, callback) -> object:
        """Run *callback* in a step: in the next pass of this one, or here and now if no thread leads, or else by the
        leader, before that lets go.

        Takes no lock that the caller could leave held: signal handlers and finalizers may call it.
        """
        if self._leader == this_thread():
            self._soon.put(callback)
            return
        with cython.critical_section(self):
            self._posted.append(callback)
        if self._may_lead_here():
            self._lead_posted()
        else:
            self._notify_leader()

    def post(self, callback):
        """As `call_soon`, but never in this thread: for finalizers, which may run anywhere."""
        with cython.critical_section(self):
            self._posted.append(callback)
        self._notify_leader()

    @cython.cfunc
    def _notify_leader(self) -> object:
        """There is something to do: the thread that leads next wakes, whichever it is."""
        self._notify()
        call_back(cython.address(self._aside))

    @property
    def leads(self):
        """Whether the calling thread leads."""
        return self._leader == this_thread()

    @property
    def timers(self):
        """How many are set."""
        return len(self._timers) - self._cancelled

    @property
    def is_bound_here(self):
        """Whether the calling thread is the only one that may lead."""
        return self._bound == this_thread()

    def run_until(self, waiter, timeout=None):
        """Wait until *waiter* has ended, leading meanwhile if no other caller does; whether it has.

        Handlers of signals run here, and may raise.

        Raises:
            IllegalStateError: the calling thread leads already: a callback of the client would wait for the client.
        """
        if self._leader == this_thread():
            raise IllegalStateError("a blocking call in the client's own thread would deadlock: call it from another thread")
        until: cython.double = INFINITY
        left: cython.double = INFINITY
        if timeout is not None:
            until = seconds_of(self.clock) + cython.cast(cython.double, timeout)
        try:
            here: cython.bint = self._may_lead_here() or not self._background
            while not waiter.done:
                if until != INFINITY:
                    left = until - seconds_of(self.clock)
                    if left <= 0:
                        break
                if here:
                    self._wait(waiter, left)
                else:
                    waiter.wait(left)
        finally:
            self._leave(waiter)
        return waiter.done

    def run_until_done(self, awaited, timeout=None):
        """As `run_until`, of what calls ``when_done(callback)`` back, unless it is to ``forget`` it; its ``done``."""
        waiter: Waiter = Waiter(self)
        awaited.when_done(waiter)
        try:
            return self.run_until(waiter, timeout) or awaited.done
        finally:
            if not waiter.done:
                awaited.forget(waiter)

    @cython.cfunc
    def _wait(self, waiter: Waiter, left: cython.double) -> object:
        """In the poller, and lead then; or at the waiter's gate. Behind a close every caller leads for itself."""
        if self._polls(waiter):
            if not waiter.done:  # who ended it may have looked for a caller in the poller before this one was there
                self._lead_after(self.poller.sleep(None if left == INFINITY else left), waiter)
        elif self.closed:
            self._lead_after((), None)  # it leaves nothing to others
            waiter.wait(min(left, ASIDE_S))
        else:
            waiter.wait(left)

    def run_forever(self):
        """The background thread: sleep and lead until `close`."""
        self._background = this_thread()
        while not self.closed:
            if self._stands_aside:
                with cython.nogil:
                    stand_aside(cython.address(self._aside))
            if self._polling_has_ended(None):  # the event that was to wake it woke this thread
                self.poller.wake()
                time.sleep(ASIDE_S)  # not in the poller, so that it gets the next one
            else:
                self._lead_after(self.poller.sleep(None), None)
        while self._polling is not None:
            self.poller.wake()
            time.sleep(ASIDE_S)
        self._lead_after((), None)  # what that caller has left

    def step(self, events=()):
        """Handle *events*, pairs of a sink and what has come, and all that is posted or due."""
        self._lead_after(events, None)

    def close(self):
        """End `run_forever`, which returns when no caller sleeps in the poller any more."""
        with cython.critical_section(self):  # no caller goes to the poller behind it
            self.closed = True
            followers = list(self._followers)
        for each in followers:
            cython.cast(Waiter, each).let_through()
        call_back(cython.address(self._aside))
        self.poller.wake()

    def forked(self):
        """In a forked child: descriptors are the parent's, and so is the leader, if there was one."""
        self.closed = self.is_forked = True
        self.poller.close()

    # ---- in a step --------------------------------------------------------------------------------------------------

    def call_at(self, when: cython.double, callback):
        """Run *callback* at *when*, in seconds of the clock."""
        timer: Timer = Timer.__new__(Timer)
        timer.when, timer.callback, timer._reactor, timer._waits = when, callback, self, True
        self._number += 1
        _push(self._timers, (when, self._number, timer))
        return timer

    @cython.cfunc
    def _timer_cancelled(self) -> object:
        """Forget cancelled timers once they are the most: timeouts are long, and few of them come."""
        self._cancelled += 1
        if self._cancelled > MOST_CANCELLED and self._cancelled * 2 > len(self._timers):
            self._timers = [each for each in self._timers if cython.cast(Timer, each[2]).callback is not None]
            _heapify(self._timers)
            self._cancelled = 0

    # ---- leading ----------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(check=False)
    def _may_lead_here(self) -> cython.bint:
        """Whether this thread is one that leads, and its stack has room for a step."""
        return (not self._bound or self._bound == this_thread()) and calls_left() > MOST_NESTED

    @cython.cfunc
    @cython.exceptval(check=False)
    def _try_to_lead(self) -> cython.bint:
        if not take_lock(self._lock, 0):
            return False
        self._leader = this_thread()
        return True

    @cython.cfunc
    def _lead(self) -> object:
        if self._leader == this_thread():
            raise IllegalStateError("a step of the reactor cannot begin within another one")
        if not take_lock(self._lock, 0):
            with cython.nogil:
                take_lock(self._lock, 1)
        self._leader = this_thread()

    @cython.cfunc
    def _lead_posted(self) -> object:
        """Run what was posted, unless another thread leads: that one does it."""
        if self._leader != this_thread() and self._try_to_lead():
            try:
                self._step(None)
            finally:
                self._stop_leading(None)

    @cython.cfunc
    def _lead_after(self, events, waiter: Waiter | None) -> object:
        self._lead()
        try:
            for each in events:
                self._events.put(each)
            self._step(waiter)
        finally:
            self._stop_leading(waiter)

    @cython.cfunc
    def _stop_leading(self, waiter: Waiter | None) -> object:
        """Let go, and go on with what was posted meanwhile: its poster may have found the lock taken."""
        raised = None
        deferral: Deferral
        deferral.began = False
        rounds: cython.int = 0
        try:
            while True:
                self._set_deadline()
                rounds += 1
                left: cython.bint = self._soon.count() > 0 or self._events.count() > 0 or rounds == MOST_ROUNDS
                deferral = self._deferral
                self._deferral.began = False
                if self._raised is not None:
                    raised, self._raised = self._raised, None
                self._release(waiter, left)
                if left or not self._has_posted() or not self._try_to_lead():
                    break
                self._deferral = deferral
                self._step(waiter)
        except BaseException:
            if self._leader == this_thread():
                deferral = self._deferral
                self._deferral.began = False
                self._release(waiter, True)
            raise
        finally:
            if deferral.began:
                end_deferral(deferral)
        if raised is not None:
            raise raised

    @cython.cfunc
    def _release(self, waiter: Waiter | None, left: cython.bint) -> object:
        """Let go of the lock; wake who goes on with what is *left*, and the caller in the poller whose wait is over."""
        self._leader = 0
        release_lock(self._lock)
        if self._polling_has_ended(waiter):
            self.poller.wake()
        if left:
            self._notify_leader()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _polling_has_ended(self, waiter: Waiter | None) -> cython.bint:
        """Whether the wait of the caller in the poller is over; not of *waiter*, whose thread asks."""
        with cython.critical_section(self):
            return self._polling is not None and self._polling.done and self._polling is not waiter

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _has_posted(self) -> cython.bint:
        with cython.critical_section(self):
            return len(self._posted) > 0

    @cython.cfunc
    def _step(self, waiter: Waiter | None) -> object:
        """Handle all that has come and is due; a caller whose wait is over leaves the rest to the next leader."""
        passes: cython.int = 0
        more: cython.int = PASSES_AFTER_END
        while self._pass():
            if waiter is not None and waiter.done:
                if not more:
                    break
                more -= 1
            passes += 1
            if passes == MOST_PASSES:
                break

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _pass(self) -> cython.bint:
        """Report events, then run what is posted, due, and ready now; whether there was anything."""
        events, soon = self._events, self._soon
        count: cython.Py_ssize_t = events.count()
        some: cython.bint = count > 0
        while count:
            count -= 1
            self._enter_interpreted()
            sink, what = events.take()
            self._call(sink, what)
        if self._posted:
            none: list = []
            with cython.critical_section(self):
                posted, self._posted = self._posted, none
            for callback in posted:
                soon.put(callback)
        if self._timers:
            self._take_due()
        count = soon.count()
        some = some or count > 0
        while count:
            count -= 1
            self._enter_interpreted()
            self._call(soon.take(), None)
        return some

    @cython.cfunc
    def _take_due(self) -> object:
        timers = self._timers
        now: cython.double = seconds_of(self.clock)
        while timers and cython.cast(cython.double, timers[0][0]) <= now:
            timer: Timer = _pop(timers)[2]
            timer._waits = False
            if timer.callback is not None:
                self._soon.put(timer)
            elif self._cancelled:
                self._cancelled -= 1

    @cython.cfunc
    def _call(self, callback, events) -> object:
        """A defect must not stop the other callbacks."""
        self.calls += 1
        try:
            if events is None:
                callback()
            else:
                callback(events)
        except Exception:
            _log.exception("a defect in the client: %r raised; the client continues", callback)
        except BaseException as error:
            self._raised = error

    @cython.cfunc
    def _enter_interpreted(self) -> object:
        """From here to the end of the step, exceptions from outside are deferred."""
        if self._defers and not self._deferral.began and this_thread() != self._background:
            self._deferral = begin_deferral()

    @cython.cfunc
    def _set_deadline(self) -> object:
        """Give the poller the earliest deadline. It may be too early, never too late: an earlier one stays set."""
        timers = self._timers
        while timers and cython.cast(Timer, timers[0][2]).callback is None:
            _pop(timers)
            if self._cancelled:
                self._cancelled -= 1
        first: cython.double = timers[0][0] if timers else INFINITY
        if first < self._deadline or (self._deadline != INFINITY and self._deadline <= seconds_of(self.clock)):
            self._deadline = first
            self.poller.set_deadline(None if first == INFINITY else first)

    # ---- the caller in the poller, and its followers ----------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _polls(self, waiter: Waiter) -> cython.bint:
        """Whether *waiter* is the caller that sleeps in the poller; else it is one of the followers."""
        with cython.critical_section(self):
            if self._polling is None and self._shared and not self.closed:
                self._polling = waiter
                caller_came(cython.address(self._aside))
            elif self._polling is not waiter and waiter not in self._followers:
                self._followers.append(waiter)
            return self._polling is waiter

    @cython.cfunc
    def _leave(self, waiter: Waiter) -> object:
        """A follower goes to the poller: handed over at once, so that `run_forever` does not end in between."""
        following: Waiter = None
        with cython.critical_section(self):
            was_polling: cython.bint = self._polling is waiter
            if was_polling:
                self._polling = None
            elif waiter in self._followers:
                self._followers.remove(waiter)
            if self._polling is None and self._shared and self._followers and not self.closed:
                following = self._polling = self._followers.popleft()
                caller_came(cython.address(self._aside))
            elif was_polling:
                caller_left(cython.address(self._aside))
        if following is not None:
            following.let_through()
        if self.closed:
            self.poller.wake()  # which was to end the background thread, and may have woken this one
