# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""One Produce request of open batches of several partitions, each on its lane, in compiled code.

As `Lane` for one batch: what is unusual is left where it is, and no step runs interpreted code.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.pyclient.buffers.accumulator import Accumulator
from cython.cimports.pyclient.buffers.batch import Batch
from cython.cimports.pyclient.buffers.deliveries import notifies
from cython.cimports.pyclient.net.lone_exchange import Lane
from cython.cimports.pyclient.net.sockets import MOST_PIECES, PyMemoryView_GET_BUFFER, peek, send_vector, take

from pyclient.codec.encode import HEADER_SIZE
from pyclient.codec.produce import TOPIC_IDS_SINCE, batches_frame, stored_batches
from pyclient.core.sending.produce_outcome import PAST_OFFSETS

ROOM = cython.declare(cython.Py_ssize_t, 4096)
PER_BATCH = cython.declare(cython.Py_ssize_t, 40)  # of an answer, beside the topic
MOST_BATCHES = cython.declare(cython.Py_ssize_t, (MOST_PIECES - 2) // 3)  # each is three pieces at most
HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)
END_OF_OFFSETS = cython.declare(cython.longlong, PAST_OFFSETS)


@cython.final
@cython.cclass
class LaneRequest:
    """With *batch*, to the node of its lane *first*; `add` gives it more. The fields are declared in lane_request.pxd.
    """

    def __init__(self, first: Lane, batch: Batch):
        self.first, self.lanes, self.batches = first, [first], [batch]
        self._size, self._answer_size = HEADER + batch._at, 2 * PER_BATCH + len(first.address[0])

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def add(self, lane: Lane, batch: Batch, most: cython.Py_ssize_t) -> cython.bint:
        """The *batch* leaves too, unless the request would have more than *most* bytes of batches, or too long an
        answer.
        """
        answer_size: cython.Py_ssize_t = self._answer_size + PER_BATCH + len(lane.address[0])
        size: cython.Py_ssize_t = self._size + HEADER + batch._at
        if answer_size > ROOM or size > most or len(self.lanes) == MOST_BATCHES or lane.terms != self.first.terms:
            return False
        self._answer_size, self._size = answer_size, size
        self.lanes.append(lane)
        self.batches.append(batch)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def notifies(self) -> cython.bint:
        """Whether somebody is notified of the end of a batch."""
        batch: Batch
        for batch in self.batches:  # noqa: SIM110 without a generator
            if notifies(batch.result):
                return True
        return False

    @cython.cfunc
    def write(self, now: cython.double) -> cython.void:
        """Write it. `rest` is what the kernel did not take, None if it took all."""
        first: Lane = self.first
        self.sent_at = now
        if len(self.lanes) == 1:
            self.rest = first.write(self.batches[0], now)
            return
        pieces: list = batches_frame(first.terms, first.take_id(), self._topics())
        size: cython.Py_ssize_t = self._vector_of(pieces)
        descriptor: cython.int = first._descriptor
        count: cython.int = len(pieces)
        taken: cython.Py_ssize_t
        with cython.nogil:
            taken = send_vector(descriptor, self._vector, count)
        self._count_sent(size, now)
        self.rest = None if taken == size else b"".join(pieces)[taken:]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _vector_of(self, pieces: list) -> cython.Py_ssize_t:
        """Let `_vector` refer to the bytes of *pieces*; returns how many these are."""
        size: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        for at in range(len(pieces)):
            piece: object = pieces[at]
            if type(piece) is bytes:
                self._vector[at].iov_base, self._vector[at].iov_len = PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece)
            else:
                self._vector[at].iov_base, self._vector[at].iov_len = PyMemoryView_GET_BUFFER(piece).buf, PyMemoryView_GET_BUFFER(piece).len
            size += self._vector[at].iov_len
        return size

    @cython.cfunc
    def _topics(self) -> dict:
        batch: Batch
        topics: dict = {}
        for lane, batch in zip(self.lanes, self.batches):  # noqa: B905 compiled: of equal lengths
            topic, partition = cython.cast(Lane, lane).address
            topics.setdefault(topic, []).append((partition, batch.pieces()))
        return topics

    @cython.cfunc
    def _count_sent(self, size: cython.Py_ssize_t, now: cython.double) -> object:
        batch: Batch
        records: cython.longlong = 0
        for lane, batch in zip(self.lanes, self.batches):  # noqa: B905
            cython.cast(Lane, lane)._topic.sent(batch, now)
            records += batch.count
        self.first.count_request(size, len(self.batches), records, now)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take_answer(self) -> cython.bint:
        """Take the answer from the socket if it is whole and says that all is stored; else leave it there."""
        first: Lane = self.first
        if len(self.lanes) == 1:
            if not first.take_answer():
                return False
            self._stored, self._came = [(first.base_offset, first.append_time)], first._size
            return True
        self._came = peek(first._descriptor, self._answer, ROOM)
        return self._came > 8 and self._reads(PyBytes_FromStringAndSize(self._answer, self._came)) and take(first._descriptor, self._answer, self._came)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _reads(self, answer: bytes) -> cython.bint:
        """Whether these bytes are the answer, whole and alone."""
        first: Lane = self.first
        head: bytes = (self._came - 4).to_bytes(4, "big") + first._correlation_id.to_bytes(4, "big")
        found: dict = stored_batches(first.terms.version, answer[4:]) if answer[:8] == head else None
        if found is None or len(found) != len(self.lanes):
            return False
        by_id: cython.bint = first.terms.version >= TOPIC_IDS_SINCE
        self._stored = []
        for lane in self.lanes:
            topic, partition = cython.cast(Lane, lane).address
            stored = found.get((topic if by_id else topic.encode(), partition))
            if stored is None or stored[0] >= END_OF_OFFSETS:
                return False
            self._stored.append(stored)
        return True

    @cython.cfunc
    def settle(self, accumulator: Accumulator, now: cython.double, late: cython.bint) -> object:
        """The answer was taken: all batches are stored. *late*: when it came is not known."""
        batch: Batch
        if late:
            self.first.count_late_answer(self._came, now)
        else:
            self.first.count_answer(self._came, now, self.sent_at)
        for lane, batch, stored in zip(self.lanes, self.batches, self._stored):  # noqa: B905
            cython.cast(Lane, lane).count_stored(batch.count, now)
            accumulator.settle_lone(batch, stored[0], stored[1])
