# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Repeats the exchange of a lone record in the thread that sends it, in compiled code and a dozen system calls' time.

A service sends one record after the other to a partition, and nothing else happens: the next request differs from the
last one in its correlation id, sequence and records, and the next answer in its offset. While the loop sleeps on, all
that it owns is as the last exchange left it, so the decisions of that exchange hold: a `Lane` keeps them. What is
unusual is left where it is, for the ways that know everything: an answer stays in the socket, a request that the
kernel did not take whole, or whose answer the loop reads, is handed over by `on_taken` before anybody else acts.
Rules of a sync producer: lanes are used and changed only with the loop's lock. The loop's waking ends them all. No step
runs interpreted code, so no signal handler runs between two of them, and none needs to be deferred. An async producer's
tasks run on the loop: there, whatever else the client does ends them all.
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.libc.math import INFINITY
from cython.cimports.libc.string import memcmp, memcpy
from cython.cimports.pyclient.buffers.accumulator import Accumulator
from cython.cimports.pyclient.buffers.batch import Batch
from cython.cimports.pyclient.buffers.delivery import BatchResult
from cython.cimports.pyclient.buffers.queues import PartitionQueue
from cython.cimports.pyclient.codec.encode import put_int32
from cython.cimports.pyclient.codec.parse import int64_at
from cython.cimports.pyclient.codec.varints import put_uvarint, uvarint_size
from cython.cimports.pyclient.net.late_reading import LateReading
from cython.cimports.pyclient.net.sockets import await_bytes, hush, peek, send_pieces, take
from cython.cimports.pyclient.runtime.epoll import set_time, watch

import logging

from pyclient.codec.produce import LATEST
from pyclient.core.sending.produce_outcome import PAST_OFFSETS
from pyclient.core.sending.sequencing import SEQUENCES

_log = logging.getLogger(__name__)
LARGEST = cython.declare(cython.Py_ssize_t, 1 << 16)  # bytes of records: checksummed and written without letting other threads in
ROOM = cython.declare(cython.Py_ssize_t, 512)  # a usual answer is 53 to 300 bytes long, by the topic's name
END_OF_OFFSETS = cython.declare(cython.longlong, PAST_OFFSETS)
LATEST_TIME = cython.declare(cython.longlong, LATEST)
AFTER_LAST_SEQUENCE = cython.declare(cython.longlong, SEQUENCES)
CORRELATION_ID_AT = cython.declare(cython.int, 4)  # in a request: behind API and version
LONGEST_WAIT_MS = cython.declare(cython.int, 100)  # an answer that takes longer costs no more when the loop reads it


@cython.cfunc
@cython.exceptval(-1, check=False)
def set_linger_timer(selector: object, accumulator: Accumulator, timer: cython.int) -> cython.bint:
    """The timer wakes the loop's thread when the oldest linger ends; False if that is not all to be done."""
    at: cython.double
    if not selector.acquire(False):
        return False
    try:
        at = -1 if selector.wanted else accumulator.wake_by_timer()
        return at >= 0 and set_time(timer, at)
    finally:
        selector.give_back()


@cython.final
@cython.cclass
class Lane:
    """How the next lone batch of one partition leaves, and what its answer looks like. Fields: lone_exchange.pxd.

    *address* are topic and partition as requests name them, *terms* those of `ProduceTerms`. *request* is what stands
    before the length of the records, without the frame's size, and behind the records. *answer* is what stands between
    the correlation id and the batch's offset, and behind the log's start. *until* is the end of the login's session;
    *expiry* the seconds of silence after which the broker may have forgotten the producer. *figures* count the node's
    requests, latencies and throttles, all Produce requests, and the topic's batches.
    """

    def __init__(self, connection, sequence, node, *, leader, address: tuple, terms, descriptor, stamp: tuple, until, expiry, request: tuple, answer: tuple, figures: tuple):
        self.connection, self.sequence, self.leader, self._node = connection, sequence, leader, node
        self._requests, self._reader, self._silence = connection.requests, connection.reader, connection.silence
        self._in_flight = self._requests.requests
        self.address, self.terms = address, terms
        self._descriptor = descriptor
        self._producer_id, self._epoch = stamp
        self._session, self._expiry = until, expiry
        self._before, self._after = request
        self._answered, self._stored = answer
        self._sent, self._latency, self._throttle, self._request, self._topic = figures
        self._until = min(self._session, self.sequence.idle_since + self._expiry)

    @cython.cfunc
    def write(self, batch: Batch, now: cython.double) -> bytes:
        """Number the batch and write its request; returns what the kernel did not take, None if it took all."""
        self.take_id()
        self._stamp(batch)
        header: bytes = batch.pieces()[0]
        before: bytes = self._head(header, batch._at)
        size: cython.Py_ssize_t = PyBytes_GET_SIZE(before) + batch._at + PyBytes_GET_SIZE(self._after)
        start: cython.p_char = PyBytes_AS_STRING(before)
        before_size: cython.Py_ssize_t = PyBytes_GET_SIZE(before)
        records: cython.p_char = PyByteArray_AS_STRING(batch._buffer)
        records_size: cython.Py_ssize_t = batch._at
        after: cython.p_char = PyBytes_AS_STRING(self._after)
        after_size: cython.Py_ssize_t = PyBytes_GET_SIZE(self._after)
        taken: cython.Py_ssize_t
        with cython.nogil:
            taken = send_pieces(self._descriptor, start, before_size, records, records_size, after, after_size)
        self.count_request(size, 1, batch.count, now)
        self._topic.sent(batch, now)
        return None if taken == size else b"".join([before, batch.payload, self._after])[taken:]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take_id(self) -> cython.longlong:
        """The correlation id of the next request."""
        self._correlation_id = (cython.cast(cython.longlong, self._requests.correlation_id) + 1) & 0x7FFFFFFF
        self._requests.correlation_id = self._correlation_id
        return self._correlation_id

    @cython.cfunc
    def count_request(self, size: cython.Py_ssize_t, batches: cython.int, records: cython.longlong, now: cython.double) -> object:
        """Note that a request of *size* bytes was written."""
        self.connection.bytes_out += size
        self._sent.add(1)
        self._request.sent(batches, records, now)

    @cython.cfunc
    def _stamp(self, batch: Batch) -> object:
        if self._producer_id >= 0:
            batch.producer_id, batch.epoch, batch.sequence = self._producer_id, self._epoch, self.sequence.next_sequence
            self.sequence.next_sequence = (batch.sequence + cython.cast(cython.longlong, batch.count)) % AFTER_LAST_SEQUENCE

    @cython.cfunc
    def _head(self, header: bytes, records: cython.Py_ssize_t) -> bytes:
        """The frame up to the records, *header* included."""
        fixed: cython.Py_ssize_t = PyBytes_GET_SIZE(self._before)
        batch_size: cython.Py_ssize_t = PyBytes_GET_SIZE(header) + records
        length: cython.Py_ssize_t = uvarint_size(batch_size + 1)  # a compact length counts itself
        head: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 + fixed + length + PyBytes_GET_SIZE(header))
        at: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(head))
        put_int32(at, fixed + length + batch_size + PyBytes_GET_SIZE(self._after))
        memcpy(at + 4, PyBytes_AS_STRING(self._before), fixed)
        put_int32(at + 4 + CORRELATION_ID_AT, self._correlation_id)
        memcpy(put_uvarint(at + 4 + fixed, batch_size + 1), PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))
        return head

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take_answer(self) -> cython.bint:
        """Take the answer from the socket if it is whole and says that the batch is stored; else leave it there."""
        at: cython.p_char = cython.cast(cython.p_char, self._answer)
        return self._answer_size() < ROOM and self.reads(at, peek(self._descriptor, at, ROOM)) and take(self._descriptor, at, self._size)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _answer_size(self) -> cython.Py_ssize_t:
        return 8 + PyBytes_GET_SIZE(self._answered) + 24 + PyBytes_GET_SIZE(self._stored)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reads(self, at: cython.p_char, came: cython.Py_ssize_t) -> cython.bint:
        """Whether these bytes are the answer, whole and alone, and say that the batch is stored."""
        answered: cython.Py_ssize_t = PyBytes_GET_SIZE(self._answered)
        stored: cython.Py_ssize_t = PyBytes_GET_SIZE(self._stored)
        size: cython.Py_ssize_t = self._answer_size()
        if came != size:
            return False
        put_int32(cython.cast(cython.p_uchar, self._expected), size - 4)
        put_int32(cython.cast(cython.p_uchar, self._expected) + 4, self._correlation_id)
        if memcmp(at, self._expected, 8) or memcmp(at + 8, PyBytes_AS_STRING(self._answered), answered):
            return False
        if memcmp(at + 8 + answered + 24, PyBytes_AS_STRING(self._stored), stored):
            return False
        self.base_offset = int64_at(cython.cast(cython.p_uchar, at) + 8 + answered)
        self.append_time = int64_at(cython.cast(cython.p_uchar, at) + 16 + answered)
        if not 0 <= self.base_offset < END_OF_OFFSETS or not -1 <= self.append_time <= LATEST_TIME:
            return False
        self._size = size
        return True

    @cython.cfunc
    def count_answer(self, size: cython.Py_ssize_t, now: cython.double, sent_at: cython.double) -> object:
        """Note that an answer of *size* bytes came now."""
        latency: cython.double = (now - sent_at) * 1000
        self._latency.add(latency, 1, latency, now)
        self.count_late_answer(size, now)

    @cython.cfunc
    def count_late_answer(self, size: cython.Py_ssize_t, now: cython.double) -> object:
        """Note that an answer of *size* bytes was read, which may have come long before."""
        self._throttle.add(0, 1, 0, now)
        came: object = self._reader.bytes_in + size
        self._reader.bytes_in = came
        self._silence.heard_at, self._silence.bytes_in = now, came
        self.connection.idle_since = self._node.answered_at = now

    @cython.cfunc
    def count_stored(self, records: cython.int, now: cython.double) -> object:
        """Note that a batch of *records* is stored."""
        self._topic.stored(records)
        self._until = min(self._session, now + self._expiry)
        self.sequence.idle_since = now


@cython.cclass
class LoneExchange:
    """Lone records on known lanes, and the request of one of them that is in flight.

    *otherwise* does what `on_ready` cannot; *hand_over* gets the lanes and the batches of a request, the time when it
    was sent, what of it was not written, and whether the time of its answer will show the latency. The fields are
    declared in lone_exchange.pxd.
    """

    def __init__(self, accumulator: Accumulator, clock, metrics, *, otherwise, hand_over):
        self._accumulator = accumulator
        self._clock = clock
        self._metrics = metrics
        self._otherwise = otherwise
        self._hand_over = hand_over
        self._lanes = {}

    # ---- alone with all that the loop owns --------------------------------------------------------------------------

    def put(self, queue: PartitionQueue, lane: Lane):
        """The next lone batch of *queue* may take *lane*."""
        self._lanes[queue] = lane

    def remove(self, queue: PartitionQueue):
        """Its batches go another way until `put`."""
        self._lanes.pop(queue, None)

    def __len__(self):
        return len(self._lanes)

    def clear(self):
        """Something has happened that no lane knows of; returns the queues, each with its lane."""
        ended = list(self._lanes.items())
        self._lanes.clear()
        return ended

    def on_taken(self):
        """Others act now: they get the request that is in flight on a lane, which ends with it.

        Its answer is not read here, and may change all that the lane was made of.
        """
        batch: Batch = self._batch
        lane: Lane = self._lane
        rest: bytes = self._rest
        if batch is not None:
            self._batch = self._lane = self._rest = None
            self._lanes.pop(batch.queue, None)
            self._hand_over([lane], [batch], self._sent_at, rest, not self._lay)

    @property
    def in_flight(self) -> bool:
        """Whether a request is, which only its lane knows of."""
        return self._batch is not None

    def close(self):
        """Use no lane any more: the process is a forked child, whose parent owns the sockets."""
        self._closed = True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _send_on(self, lane: Lane | None, queue: PartitionQueue) -> cython.bint:
        batch: Batch
        now: cython.double = self._clock()
        if lane is None or now >= lane._until or len(lane._in_flight) or now >= self._metrics.next_mark:
            return False
        batch = self._accumulator.start_lone(queue, LARGEST)
        if batch is None:
            return False
        self._batch, self._lane, self._sent_at, self._lay = batch, lane, now, False
        self._rest = lane.write(batch, now)
        return self._rest is None  # else the next one to act writes the rest

    @cython.cfunc
    def _settle(self, late: cython.bint) -> object:
        """The answer was taken, *late* or as soon as it came. The waiters, called last, may send the next record on the
        lane.
        """
        lane: Lane = self._lane
        batch: Batch = self._batch
        self._batch = self._lane = None
        now: cython.double = self._clock()
        if late or self._lay:
            lane.count_late_answer(lane._size, now)
        else:
            lane.count_answer(lane._size, now, self._sent_at)
        lane.count_stored(batch.count, now)
        self._accumulator.settle_lone(batch, lane.base_offset, lane.append_time)


@cython.final
@cython.cclass
class LentExchange(LoneExchange):
    """Of a sync producer: the thread that sends acts, with the lock of the loop, while that sleeps.

    *timers* show when a linger ends (-1 without one) and when an answer is read at the latest, *patience* seconds
    behind its request.
    """

    def __init__(self, accumulator: Accumulator, selector, clock, metrics, *, timers: tuple, patience: cython.double, otherwise, hand_over, unknown):
        LoneExchange.__init__(self, accumulator, clock, metrics, otherwise=otherwise, hand_over=hand_over)
        self._selector, self._unknown = selector, unknown
        self._linger_timer, self._late_timer = timers
        self._acquire, self._give_back = selector.acquire, selector.give_back
        self._bell = selector.bell
        self._epoll = selector.descriptor
        self._late = LateReading(self._epoll, self._late_timer, patience)

    def on_taken(self):
        """As `LoneExchange.on_taken`; the loop reads all sockets again."""
        self._resume_reading()
        LoneExchange.on_taken(self)

    def on_readable(self, descriptor: int) -> bool:
        """On the loop's thread, which would wake for *descriptor*: take the answer to the request in flight, or send
        the batch whose linger has ended. *unknown* gets any other. Returns whether the loop may sleep on.
        """
        try:
            return self._handles(descriptor) or self._unknown(descriptor)
        except Exception:  # noqa: BLE001 the loop must go on
            _log.exception("a defect in the client: a lone batch could not be handled in place; the loop goes on")
            return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _handles(self, descriptor: cython.int) -> cython.bint:
        if self._closed:
            return False
        if descriptor == self._linger_timer:
            return self._end_linger()
        if descriptor == self._late_timer:
            return self._read_late()
        return self._batch is not None and self._lane._descriptor == descriptor and self._takes_answer(False)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _takes_answer(self, late: cython.bint) -> cython.bint:
        """Whether the batch in flight was settled by what lies in the socket."""
        lane: Lane = self._lane
        if self._rest is not None or not lane.take_answer():
            return False
        self._settle(late)
        return True

    # ---- any thread -------------------------------------------------------------------------------------------------

    def on_ready(self):
        """A batch may leave, now or when its linger ends: send it here if it is a lone one with a lane, or set the
        timer.
        """
        if self._closed or not (set_linger_timer(self._selector, self._accumulator, self._linger_timer) if self._linger_timer >= 0 else len(self._lanes) > 0 and self._send()):
            self._otherwise()

    def wait(self, result: BatchResult, seconds: object) -> bool:
        """Read the answer to the lone request of *result*, as long as nothing else is to be done; whether it is done.

        Ends too after *seconds*, and on a signal, whose handler has not run yet.
        """
        if self._closed or not self._lanes or self._selector.wanted or not self._acquire(False):
            return False
        try:
            if self._batch is not None and self._batch.result is result and result._callback is None and self._rest is None:
                self._read(self._lane, self._batch, INFINITY if seconds is None else seconds)
        finally:
            self._give_back()
        return result._done

    def hear(self, result: BatchResult | None):
        """A caller that does not `wait` wants to know of *result* (None: of any): the loop reads its answer."""
        if self._closed:
            return  # the loop is the parent's
        if not self._acquire(False):
            self._otherwise()  # the thread that has the lock may be about to leave the answer in the socket
            return
        try:
            if self._batch is not None and (result is None or self._batch.result is result):
                self._resume_reading()
        finally:
            self._give_back()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _resume_reading(self) -> cython.int:
        """The loop reads all sockets again. When an answer came that lies in one already is not known."""
        came: cython.char[1]
        if self._batch is not None and self._late.is_paused(self._lane._descriptor):
            self._lay = peek(self._lane._descriptor, cython.cast(cython.p_char, came), 1) > 0
        return self._late.resume()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _send(self) -> cython.bint:
        """Send the only batch that may leave; False if it has no lane now."""
        if not self._acquire(False):
            return False
        try:
            if self._batch is not None and self._batch.result._callback is None:  # the loop's thread runs callbacks
                self._takes_answer(self._late.is_paused(self._lane._descriptor))
            return not self._selector.wanted and self._send_lone()
        finally:
            self._give_back()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _send_lone(self) -> cython.bint:
        """Send the only batch that may leave; False if it has no lane now."""
        queue: PartitionQueue = None if self._batch is not None else self._accumulator.lone_queue()
        if queue is None or not self._send_on(self._lanes.get(queue), queue):
            return False
        if self._batch.result.may_be_late():
            self._late.pause(self._lane._descriptor, self._sent_at)
        else:
            self._late.resume()
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _end_linger(self) -> cython.bint:
        """Send the batch whose linger has ended; False if it has no lane now, or if more is to be done."""
        if self._batch is not None:
            self._takes_answer(True)
        return self._send_lone() and set_time(self._linger_timer, INFINITY)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_late(self) -> cython.bint:
        """The answer was left in its socket until now."""
        if self._batch is not None:
            self._takes_answer(True)
        self._late.end()
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read(self, lane: Lane, batch: Batch, seconds: cython.double) -> cython.int:
        """Wait for the answer, the loop's reading paused, and settle the batch if it is the usual one."""
        timeout_ms: cython.int = 0 if not seconds > 0 else cython.cast(cython.int, min(seconds * 1000, LONGEST_WAIT_MS))
        came: cython.bint
        paused: cython.bint = self._late.is_paused(lane._descriptor)
        if paused and self._takes_answer(True):  # when it came is not known
            return 0
        if not paused and not watch(self._epoll, lane._descriptor, False):
            return 0
        with cython.nogil:
            came = await_bytes(lane._descriptor, self._bell, timeout_ms)
        try:
            if came and batch.result._callback is None:
                self._takes_answer(False)
            elif not came:
                hush(self._bell)
        finally:
            if not paused:
                watch(self._epoll, lane._descriptor, True)
        return 0


@cython.final
@cython.cclass
class LoopExchange(LoneExchange):
    """Of an async producer: its tasks act on the user's loop, between two things that the client does on it."""

    def __init__(self, accumulator: Accumulator, runs_here, clock, metrics, *, otherwise, hand_over):
        LoneExchange.__init__(self, accumulator, clock, metrics, otherwise=otherwise, hand_over=hand_over)
        self._runs_here = runs_here

    def on_ready(self):
        """A batch may leave: send it now if it is a lone one with a lane."""
        if self._closed or not self._lanes or self._batch is not None or not self._runs_here() or not self._send():
            self._otherwise()

    def take(self, connection, size: cython.Py_ssize_t) -> bool:
        """So many bytes came on *connection*: whether they are the usual answer to the request in flight."""
        lane: Lane = self._lane
        at: cython.p_char
        if self._batch is None or self._rest is not None or lane.connection is not connection or not lane._reader.is_empty:
            return False
        at = PyByteArray_AS_STRING(lane._reader.scratch)
        if not lane.reads(at, size):
            return False
        self._settle(False)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _send(self) -> cython.bint:
        """Send the only batch that may leave; False if it has no lane now."""
        queue: PartitionQueue = self._accumulator.lone_queue()
        return queue is not None and self._send_on(self._lanes.get(queue), queue)
