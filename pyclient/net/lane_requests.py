# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The Produce requests of an open transaction that are in flight on lanes: which batches leave, which are stored.

At most one is in flight to each node, with the next batch of each of its partitions. The sleeping loop does not read
their sockets: an answer lies there until a thread looks. What is unusual is left where it is.
Rules: as those of `TransactionExchange`, which uses this with the loop's lock.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.libc.math import INFINITY
from cython.cimports.pyclient.buffers.accumulator import Accumulator
from cython.cimports.pyclient.buffers.batch import Batch
from cython.cimports.pyclient.buffers.queues import PartitionQueue
from cython.cimports.pyclient.core.transactions.usual import UsualTransactions
from cython.cimports.pyclient.net.lane_request import LaneRequest
from cython.cimports.pyclient.net.lone_exchange import Lane
from cython.cimports.pyclient.net.sockets import peek, send_all
from cython.cimports.pyclient.runtime.epoll import watch

LATE_S = cython.declare(cython.double, 0.01)  # an answer lies no longer in its socket
OVERDUE_S = cython.declare(cython.double, 0.1)  # an answer that takes longer is for the loop, which knows all timeouts
BRIEFLY_MS = cython.declare(cython.int, 1)


@cython.final
@cython.cclass
class LaneRequests:
    """Of one producer. *lanes* are those of the exchange, by their queue; *epoll* and *bell* are the loop's.

    The fields are declared in lane_requests.pxd.
    """

    def __init__(self, accumulator: Accumulator, usual: UsualTransactions, lanes: dict, *, epoll: cython.int, bell: cython.int):
        self._accumulator, self._usual, self._lanes = accumulator, usual, lanes
        self._epoll, self._bell = epoll, bell
        self.requests, self._paused = [], []

    # ---- the loop's reading -----------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def pause(self, descriptor: cython.int) -> cython.bint:
        """The loop does not read this socket until `resume`; False if it knows none."""
        if descriptor in self._paused:
            return True
        if not watch(self._epoll, descriptor, False):
            return False
        self._paused.append(descriptor)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def resume(self) -> cython.int:
        """The loop reads all sockets again."""
        descriptor: cython.int
        for descriptor in self._paused:
            watch(self._epoll, descriptor, True)  # nothing if it was closed
        self._paused.clear()
        return 0

    # ---- leaving ----------------------------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def may_leave(self, batch: Batch, now: cython.double) -> cython.bint:
        """Whether this batch, which is in no request, has a lane that can be used."""
        return self._usable_lane(batch.queue, now) is not None

    @cython.cfunc
    def _usable_lane(self, queue: PartitionQueue, now: cython.double) -> Lane:
        lane: Lane = self._lanes.get(queue)
        if lane is None or now >= lane._until:
            self.missed = queue
            return None
        return None if len(lane._in_flight) or not self._usual.may_send(lane.sequence) else lane

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def leave(self, now: cython.double, ends: cython.bint) -> cython.bint:
        """Send what may leave, in one request to each node that has none in flight; False if others have to.

        *ends*: all batches, as the transaction is being committed. Else the answers may be read late.
        """
        request: LaneRequest
        heads: list = self._accumulator.heads(INFINITY if ends else now)
        requests: list = None if heads is None else self._requests_of(heads, now)
        if requests is None:
            return False
        for request in requests:
            if not self.pause(request.first._descriptor) or not self._accumulator.start_heads(request.batches):
                return False
            request.early = not ends
            self._write(request, now)
        return True

    @cython.cfunc
    def _requests_of(self, batches: list, now: cython.double) -> list:
        """The batches in a request for each node; None if one of them has no lane. What has no room leaves later."""
        batch: Batch
        lane: Lane
        request: LaneRequest
        found: dict = {}
        for request in self.requests:
            found[request.first.connection] = None
        for batch in batches:
            lane = self._usable_lane(batch.queue, now)
            if lane is None:
                return None
            if lane.connection not in found:
                found[lane.connection] = LaneRequest(lane, batch)
            else:
                request = found[lane.connection]
                if request is not None:
                    request.add(lane, batch, self._accumulator._max_request_size)
        return [request for request in found.values() if request is not None]

    @cython.cfunc
    def _write(self, request: LaneRequest, now: cython.double) -> object:
        lane: Lane
        batch: Batch
        for lane, batch in zip(request.lanes, request.batches):  # noqa: B905 compiled: of equal lengths
            self._usual.leaves(batch, lane.sequence, lane.leader, now)
            if request.early:
                batch.result.may_be_late()
        self.requests.append(request)
        request.write(now)

    @cython.cfunc
    def write_rests(self, timeout_ms: cython.int) -> object:
        """Write what the kernel did not take, as far as it takes it in time."""
        request: LaneRequest
        for request in self.requests:
            if request.rest is not None:
                self._write_rest(request, timeout_ms)

    @cython.cfunc
    def _write_rest(self, request: LaneRequest, timeout_ms: cython.int) -> object:
        rest: bytes = request.rest
        descriptor: cython.int = request.first._descriptor
        bell: cython.int = self._bell
        at: cython.p_char = PyBytes_AS_STRING(rest)
        size: cython.Py_ssize_t = PyBytes_GET_SIZE(rest)
        taken: cython.Py_ssize_t
        with cython.nogil:
            taken = send_all(descriptor, bell, at, size, timeout_ms)
        request.rest = None if taken == size else rest[taken:]

    # ---- answers ----------------------------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def take_come(self, now: cython.double) -> cython.bint:
        """Settle what was answered meanwhile; False if an answer is for others."""
        request: LaneRequest
        self.write_rests(BRIEFLY_MS)
        for request in list(self.requests):
            if self.has_come(request) and not self.take(request, now, True, False):
                return False
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def has_come(self, request: LaneRequest) -> cython.bint:
        """Whether an answer, or the beginning of one, lies in the socket."""
        came: cython.char[1]
        return peek(request.first._descriptor, cython.cast(cython.p_char, came), 1) > 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def take(self, request: LaneRequest, now: cython.double, late: cython.bint, notifies: cython.bint) -> cython.bint:
        """Take the answer and settle the batches, if all are stored; if somebody is notified, for *notifies* only.

        *late*: when it came is not known.
        """
        lane: Lane
        if (not notifies and request.notifies()) or not request.take_answer():
            return False
        self.requests = [other for other in self.requests if other is not request]
        for lane in request.lanes:
            if late:
                self._usual.stored_before(lane.sequence)
            else:
                self._usual.stored(lane.sequence, now)
        request.settle(self._accumulator, now, late)
        return True

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def look_at(self, now: cython.double) -> cython.double:
        """When the answer to the oldest request has to be looked for; the loop reads one that is late. -1 if others
        have to act: they write the rest of a request, and end one that is never answered.
        """
        if not self.requests:
            return INFINITY
        oldest: LaneRequest = self.requests[0]
        if oldest.sent_at + LATE_S > now:
            return oldest.sent_at + LATE_S
        self.resume()
        overdue_at: cython.double = oldest.sent_at + OVERDUE_S
        return overdue_at if overdue_at > now and oldest.rest is None else -1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def awaits(self, descriptor: cython.int) -> cython.bint:
        """Whether a request is in flight on this socket."""
        request: LaneRequest
        for request in self.requests:  # noqa: SIM110 without a generator
            if request.first._descriptor == descriptor:
                return True
        return False

    @cython.cfunc
    def give_all(self) -> list:
        """The requests, which others finish."""
        given, self.requests = self.requests, []
        return given
