# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Carries out the usual transaction in the thread that calls, in compiled code: begun, its batches sent, committed.

As `lone_exchange` for a record that is sent alone: the decisions of the last commit hold while the loop sleeps on, and
nothing else is to be done. What a transaction is and may do is decided in `pyclient.core.transactions.usual`. A batch
leaves when it is full, in the thread that filled it, the others with the commit (`lane_requests`). EndTxn is written
when all batches are stored, never before. A request whose answer is unusual or late is handed over by `on_taken` before
anybody else acts.
Rules: all is used and changed only with the loop's lock. No step runs interpreted code, so no signal handler runs
between two of them; where somebody has to be notified of the batch's end, handlers are deferred.
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cython.cimports.libc.math import INFINITY, ceil
from cython.cimports.pyclient.buffers.accumulator import Accumulator
from cython.cimports.pyclient.buffers.batch import IN_FLIGHT, OPEN, SEALING, Batch
from cython.cimports.pyclient.buffers.deliveries import notifies
from cython.cimports.pyclient.codec.end_txn import ANSWER, CommitFrames
from cython.cimports.pyclient.core.transactions.usual import UsualTransactions
from cython.cimports.pyclient.net.lane_request import LaneRequest
from cython.cimports.pyclient.net.lane_requests import LaneRequests
from cython.cimports.pyclient.net.lone_exchange import LoneExchange
from cython.cimports.pyclient.net.sockets import await_bytes, hush, peek, rest, send_pieces, take
from cython.cimports.pyclient.runtime.epoll import set_time

import logging
import sys

from pyclient.runtime.deferred_exceptions import DeferredExceptions

_log = logging.getLogger(__name__)
LARGEST = cython.declare(cython.Py_ssize_t, 1 << 19)  # bytes of open batches: checksummed without letting other threads in
LONGEST_WAIT_S = cython.declare(cython.double, 0.1)  # an answer that takes longer costs no more when the loop reads it
PATIENCE_S = cython.declare(cython.double, 0.02)  # the loop waits so long for the end of a commit
DEPTH = cython.declare(cython.int, 200)  # calls that must fit into the caller's stack

# The result of a commit.
FAILED = cython.declare(cython.int, 0)  # others have to do it, or to finish it
DONE = cython.declare(cython.int, 1)
NOTIFIES = cython.declare(cython.int, 2)  # nothing has changed, and signal handlers have to be deferred

# How far a commit is that was not finished here.
NOWHERE = cython.declare(cython.int, 0)
COMMITTING = cython.declare(cython.int, 1)  # records may have to be sent
ENDING = cython.declare(cython.int, 2)  # EndTxn is in flight


@cython.cfunc
@cython.exceptval(-1, check=False)
def _has_stack() -> cython.bint:
    """Whether the caller is not so deep in its stack that a RecursionError would leave the client half changed."""
    try:
        sys._getframe(max(0, sys.getrecursionlimit() - DEPTH))
    except ValueError:
        return True
    return False


@cython.final
@cython.cclass
class CommitLane:
    """How the next EndTxn leaves on the *connection* to *known*, the coordinator on *node*. *until* is the end of the
    login's session. *figures* count the node's requests and latencies. Fields: transaction_exchange.pxd.
    """

    def __init__(self, connection, node, known, frames: CommitFrames, *, version, descriptor, until, figures: tuple):
        self.connection, self.known, self.version = connection, known, version
        self._node, self._frames = node, frames
        self._requests, self._reader, self._silence = connection.requests, connection.reader, connection.silence
        self._in_flight = self._requests.requests
        self._descriptor, self._until = descriptor, until
        self._sent, self._latency = figures

    @cython.cfunc
    def write(self, producer: object) -> bytes:
        """Write the request of *producer*, its id and epoch; returns what the kernel did not take, None if it took all.
        """
        self._requests.correlation_id = (cython.cast(cython.longlong, self._requests.correlation_id) + 1) & 0x7FFFFFFF
        frame: bytearray = self._frames.request(self._requests.correlation_id, producer[0], producer[1])
        size: cython.Py_ssize_t = PyByteArray_GET_SIZE(frame)
        at: cython.p_char = PyByteArray_AS_STRING(frame)
        taken: cython.Py_ssize_t
        with cython.nogil:
            taken = send_pieces(self._descriptor, at, size, at, 0, at, 0)
        self.connection.bytes_out += size
        self._sent.add(1)
        return None if taken == size else bytes(frame)[taken:]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take_answer(self) -> cython.bint:
        """Take the answer from the socket if it is whole and usual; else leave it there."""
        at: cython.p_char = self._answer
        return self._frames.reads(at, peek(self._descriptor, at, ANSWER + 1)) and take(self._descriptor, at, ANSWER)

    @cython.cfunc
    def count(self, now: cython.double, sent_at: cython.double) -> object:
        """Note what an answer changes."""
        latency: cython.double = (now - sent_at) * 1000
        self._latency.add(latency, 1, latency, now)
        came: object = self._reader.bytes_in + ANSWER
        self._reader.bytes_in = came
        self._silence.heard_at, self._silence.bytes_in, self._silence.since = now, came, None
        self.known.heard_at = self.connection.idle_since = self._node.answered_at = now


@cython.final
@cython.cclass
class TransactionExchange(LoneExchange):
    """Of a sync producer: the thread that calls acts, with the lock of the loop, while that sleeps.

    The request in flight and the batch of `LoneExchange` are not used.

    A commit that takes longer than *limit* seconds is finished by the loop. *signals* defer signal handlers, and run
    them again. *refused* has records that were refused and not reported yet. *resume* goes on with a commit that was
    not finished here: it gets the lane of EndTxn if that is in flight, the time when it was sent, and what of it was
    not written. The fields are declared in transaction_exchange.pxd.
    """

    def __init__(self, accumulator: Accumulator, selector, clock, metrics, *, timer: cython.int, usual: UsualTransactions, limit, signals: tuple, refused, otherwise, hand_over,
                 resume):
        LoneExchange.__init__(self, accumulator, clock, metrics, otherwise=otherwise, hand_over=hand_over)
        self._selector, self._usual, self._refused, self._resume = selector, usual, refused, resume
        self.sent = LaneRequests(accumulator, usual, self._lanes, epoll=selector.descriptor, bell=selector.bell)
        self._limit = min(limit, LONGEST_WAIT_S)
        self._hold_signals, self._release_signals = signals
        self._acquire, self._give_back = selector.acquire, selector.give_back
        self._bell, self._timer = selector.bell, timer

    # ---- alone with all that the loop owns --------------------------------------------------------------------------

    def arm(self, commits: CommitLane):
        """The next transaction may be a usual one. All batches that could not be compressed are reported."""
        self._commits = commits
        self._seal_failures = self._accumulator.seal_failures

    def clear(self):
        """As `LoneExchange.clear`; nothing is done here until `arm`."""
        self._commits = None
        return LoneExchange.clear(self)

    def take_missed(self):
        """The queue whose batch could not be sent here for want of a lane; None if there is none."""
        missed, self.sent.missed = self.sent.missed, None
        return missed

    def on_taken(self):
        """As `LoneExchange.on_taken`; others finish the commit, if one has begun."""
        request: LaneRequest
        stage: cython.int = self._stage
        self._stage = NOWHERE
        for request in self.sent.give_all():
            for batch in request.batches:
                self._lanes.pop(batch.queue, None)
            self._hand_over(request.lanes, request.batches, request.sent_at, request.rest, not request.early)
        self.sent.resume()
        if stage != NOWHERE:
            rest, self._end_rest = self._end_rest, None
            self._resume(self._ending if stage == ENDING else None, self._end_at, rest)

    @property
    def in_flight(self) -> bool:
        """Whether there are requests, or a commit, to be handed over."""
        return self._stage != NOWHERE or len(self.sent.requests) > 0

    # ---- any thread -------------------------------------------------------------------------------------------------

    def on_ready(self):
        """A batch may leave: send it if it is full, and set the timer for the end of the others' linger."""
        if self._closed or not self._goes_on():
            self._otherwise()

    def hear(self, result: object):
        """A caller wants to know of *result* (None: of any): the loop reads its answer."""
        if self._closed:
            return  # the loop is the parent's
        if self._acquire(False):
            wanted: cython.bint = len(self.sent.requests) > 0
            self._give_back()
            if not wanted:
                return
        self._otherwise()  # also if a thread has the lock: it may be about to leave the answer in the socket

    def on_readable(self, descriptor: int) -> bool:
        """On the loop's thread, which would wake for *descriptor*: send batches whose linger has ended, and read
        answers that are late. Returns whether the loop may sleep on.
        """
        try:
            if self._closed or (descriptor != self._timer and not self.sent.awaits(descriptor)):
                return False
            if not self._accumulator.unsettled and self._stage == NOWHERE:
                return set_time(self._timer, INFINITY)  # it was set for batches that have left another way
            return self._looks(descriptor)
        except Exception:  # noqa: BLE001 the loop must go on
            _log.exception("a defect in the client: a batch could not be handled in place; the loop goes on")
            return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _goes_on(self) -> cython.bint:
        """Whether what may leave has left, or will do so with the commit, or when the timer rings."""
        at: cython.double
        if not self._acquire(False):
            return False
        try:
            at = -1 if self._selector.wanted else self._accumulator.wake_by_timer()
            if at >= 0 and not self.sent.requests:
                return set_time(self._timer, at)
            return not self._selector.wanted and _has_stack() and self._looks(self._timer)
        except Exception:  # noqa: BLE001 others go on
            _log.exception("a defect in the client: a full batch could not be sent in place; the loop goes on")
            return False
        finally:
            self._give_back()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _looks(self, descriptor: cython.int) -> cython.bint:
        """Read what was answered, send what may leave, and set the timer for what is next; False if others have to.

        *descriptor* is readable, if it is a socket.
        """
        now: cython.double = self._clock()
        due: cython.double = self._usual.markers.due
        at: cython.double
        look_at: cython.double
        if not self._is_usual(now) or not self.sent.take_come(now) or self.sent.awaits(descriptor):
            return False
        if now >= due and not self.sent.leave(now, False):
            return False
        at = self._accumulator.wake_by_timer(True)
        if now >= due and not self.sent.requests and (at <= now or self._accumulator.has_left_some()):
            return False  # another thread sealed it since then, and calls no on_ready; no answer would let it leave
        if at <= now or now < due:
            at = due if now < due else INFINITY  # what could not leave does so when something is answered
        look_at = self.sent.look_at(now)
        return look_at >= 0 and set_time(self._timer, min(at, look_at))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_usual(self, now: cython.double) -> cython.bint:
        """Whether an open transaction has only to send batches."""
        if self._commits is None or self._stage != NOWHERE or len(self._refused) or now >= self._metrics.next_mark:
            return False
        return self._accumulator.seal_failures == self._seal_failures and self._usual.may_commit()

    def begin(self) -> bool:
        """Begin a transaction; False: nothing has changed, others have to do it."""
        began: cython.double = self._clock()
        if not self._borrow():
            return False
        try:
            if self._commits is None or not self._usual.begin(began):
                return False
        finally:
            self._give_back()
        self.begin_s += cython.cast(cython.double, self._clock()) - began
        return True

    def commit(self) -> bool:
        """Commit; False: others have to do it, or to finish it."""
        began: cython.double = self._clock()
        outcome: cython.int = self._try(began, False)
        if outcome == NOTIFIES:
            with DeferredExceptions():
                held = self._hold_signals()
                try:
                    outcome = self._try(began, True)
                finally:
                    self._release_signals(held)
        if outcome != DONE:
            return False
        self.commits += 1
        self.commit_s += cython.cast(cython.double, self._clock()) - began
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _try(self, began: cython.double, notifies: cython.bint) -> cython.int:
        """*notifies*: callbacks may be dispatched, which takes interpreted code."""
        if not self._borrow():
            return FAILED
        try:
            return self._commit(began, notifies)
        except Exception:  # noqa: BLE001 others go on
            _log.exception("a defect in the client: a commit could not be carried out in place; the loop goes on")
            return FAILED
        finally:
            self._selector.patience = 0.0
            self._give_back()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _borrow(self) -> cython.bint:
        """Take the lock if the loop sleeps and nothing else is known to be done."""
        if self._commits is None or self._closed or len(self._refused) or self._selector.wanted or not _has_stack() or not self._acquire(False):
            return False
        if self._stage != NOWHERE:
            self._give_back()
            return False
        return True

    # ---- a commit ---------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _commit(self, now: cython.double, notifies: cython.bint) -> cython.int:
        commits: CommitLane = self._commits
        outcome: cython.int
        if commits is None or now >= commits._until or len(commits._in_flight) or now >= self._metrics.next_mark:
            return FAILED
        if self._accumulator.seal_failures != self._seal_failures:
            return FAILED  # their records are settled, and a commit without them is wrong
        outcome = self._foreseen(now, notifies) if self._accumulator.unsettled else DONE
        if outcome != DONE:
            return outcome
        if not self._usual.may_commit():
            return FAILED
        return DONE if self._carry_out(commits, now, notifies) else FAILED

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _foreseen(self, now: cython.double, may_notify: cython.bint) -> cython.int:
        """`DONE` if all batches can leave, or have left, on lanes; else the result of the commit."""
        batch: Batch
        open_bytes: cython.Py_ssize_t = 0
        notified: cython.bint = False
        for batch in self._accumulator.pending():
            if batch._state == SEALING or (batch._state != IN_FLIGHT and not self.sent.may_leave(batch, now)):
                return FAILED
            open_bytes += batch._at if batch._state == OPEN else 0
            notified = notified or notifies(batch.result)
        if open_bytes > LARGEST or self._accumulator.heads(INFINITY) is None:
            return FAILED
        return NOTIFIES if notified and not may_notify else DONE

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _carry_out(self, commits: CommitLane, now: cython.double, notifies: cython.bint) -> cython.bint:
        """With the loop's reading of these connections paused meanwhile."""
        until: cython.double = now + self._limit
        if not self.sent.pause(commits._descriptor):
            return False
        try:
            self._selector.patience = PATIENCE_S
            self._stage = COMMITTING
            self._usual.commit()
            set_time(self._timer, INFINITY)
            return (not self._accumulator.unsettled or self._store(until, notifies)) and self._end(commits, until)
        finally:
            self.sent.resume()
            if self._stage != NOWHERE:
                set_time(self._timer, now)  # the caller goes on; if a signal handler raises instead, the loop does

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _store(self, until: cython.double, notifies: cython.bint) -> cython.bint:
        """Send the batches, and settle them when they are stored; False if that is not all that is to be sent, or not
        known.
        """
        request: LaneRequest
        late: cython.bint
        now: cython.double = self._clock()
        if now < self._usual.markers.due:
            if not self._rested(self._usual.markers.due - now):
                return False
            now = self._clock()
        while self.sent.leave(now, True):
            if not self.sent.requests:
                return self._accumulator.unsettled == 0
            request = self.sent.requests[0]
            late = request.early and self.sent.has_come(request)
            self.sent.write_rests(self._left_ms(until))
            if not self._comes(request.first._descriptor, until):
                return False
            now = self._clock()
            if not self.sent.take(request, now, late, notifies):
                return False
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _end(self, commits: CommitLane, until: cython.double) -> cython.bint:
        """End the transaction at its coordinator, if that knows it."""
        now: cython.double = self._clock()
        producer: object = self._usual.producer()
        if self._accumulator.seal_failures != self._seal_failures:
            return False  # a record of another thread, accepted since this commit began, is not stored
        if not self._usual.started():
            self._usual.ended(producer[0], producer[1])
            self._stage = NOWHERE
            return True
        self._stage, self._ending, self._end_at = ENDING, commits, now
        self._end_rest = commits.write(producer)
        if self._end_rest is not None or not self._comes(commits._descriptor, until) or not commits.take_answer():
            return False
        came: cython.double = self._clock()
        commits.count(came, now)
        self._usual.markers.ended(came, came - now)
        self._usual.ended(commits._frames.producer_id, commits._frames.epoch)
        self._stage, self._ending = NOWHERE, None
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _rested(self, seconds: cython.double) -> cython.bint:
        """Wait so long, as long as nothing else is to be done."""
        bell: cython.int = self._bell
        over: cython.bint
        with cython.nogil:
            over = rest(bell, seconds)
        if not over:
            hush(bell)
        return over

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _comes(self, descriptor: cython.int, until: cython.double) -> cython.bint:
        """Wait for an answer, as long as nothing else is to be done."""
        bell: cython.int = self._bell
        timeout_ms: cython.int = self._left_ms(until)
        came: cython.bint
        with cython.nogil:
            came = await_bytes(descriptor, bell, timeout_ms)
        if not came:
            hush(bell)
        return came

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _left_ms(self, until: cython.double) -> cython.int:
        return cython.cast(cython.int, max(0.0, ceil((until - cython.cast(cython.double, self._clock())) * 1000)))
