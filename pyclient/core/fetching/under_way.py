# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The fetches under way, at most one per node, and the room of the buffer that their responses may need.

`FetchesUnderWay.repeat` takes the response that nearly every fetch gets, records of one partition or nothing, and
begins the fetch that follows: what `FetchResponses` and `Fetcher.poll` do where nothing but one position has changed.
Compiled, because a consumer that waits for a record waits for that too.
"""
import cython
from cython.cimports.libc.math import floor, rint
from cython.cimports.pyclient.codec.batches import RecordBatch
from cython.cimports.pyclient.codec.fetch import OnePartition, UsualResponse

from pyclient.codec.batches import read_batches
from pyclient.codec.fetch import encode_fetch
from pyclient.core.fetching.sessions import PartitionRequest
from pyclient.errors import CorruptRecordError

SHORT_WAIT = cython.declare(cython.double, 0.02)
"""Seconds a broker may hold a fetch that leaves partitions out: once those are drained they must not wait for it."""
SHARE_OF_PACE = cython.declare(cython.double, 0.25)
"""Or this share of the time between two drains: a slow user is not worth fifty requests a second."""
SHARE_OF_HOLDING = cython.declare(cython.double, 0.1)
"""Or this share of the time since data came or was drained last."""


@cython.final
@cython.cclass
class Fetch:
    """One fetch under way, of a *session*. *reserved*: bytes of the buffer that its response may need; *wait*: seconds
    that the broker may hold it, from *began* on. The fields are declared in under_way.pxd.
    """

    def __init__(self, node, session, session_request, reserved, wait, began, on_end):
        self.node, self.session, self.session_request, self.reserved = node, session, session_request, reserved
        self.wait, self.began, self._on_end = wait, began, on_end

    def done(self, now, outcome):
        """As `Request.done`."""
        self._on_end(self, now, outcome)


@cython.final
@cython.cclass
class NextFetch:
    """A fetch that names one partition of its session or none, and what else the request says. *timeout* is that of the
    request, in seconds.
    """

    def __init__(self, fetch: Fetch, max_bytes, rack, limits, asked, timeout):
        self.fetch, self.max_bytes, self.rack, self.limits, self.asked, self.timeout = fetch, max_bytes, rack, limits, asked, timeout

    @cython.ccall
    def encoded(self, version: cython.int, correlation_id: cython.int, client_id: object) -> bytes:
        """As `encode_fetch`."""
        request: object = self.fetch.session_request
        limits: object = self.limits
        wait_ms: cython.int = cython.cast(cython.int, floor(rint(self.fetch.wait * 1e6) / 1000))  # as a timedelta has it
        return encode_fetch(version, correlation_id, client_id, self.asked, wait_ms, limits.min_bytes, self.max_bytes,
                            limits.isolation, request.id, request.epoch, self.rack)


@cython.final
@cython.cclass
class FetchWait:
    """How fast the user takes what is fetched, and so how long brokers may wait for records (C14). Knows times only."""

    @cython.ccall
    def came(self, now: cython.double) -> cython.void:
        """Data came."""
        self._moved = now

    @cython.ccall
    def drained(self, now: cython.double) -> cython.void:
        """The user took some. A longer time between drains is accepted step by step, a shorter one at once."""
        self._between = min(now - self._taken, 2 * self._between + SHORT_WAIT)
        self._moved = self._taken = now

    @cython.ccall
    def max_wait(self, now: cython.double) -> cython.double:
        """Seconds that a broker may wait for records while the user works on what is buffered.

        Partitions with buffered data are left out of the request. Once drained, they wait for its end. So the wait is
        short, or short beside the time of each drain, in which they are fetched again.
        """
        return max(SHORT_WAIT, SHARE_OF_PACE * self._between, SHARE_OF_HOLDING * (now - self._moved))


@cython.final
@cython.cclass
class FetchesUnderWay:
    """Begins fetches, keeps them until they end, and repeats them. *on_end* is called with a fetch, the time and the
    outcome. The fields are declared in under_way.pxd.
    """

    def __init__(self, buffer, limits, sources, positions, responses, placement, preferred, fetch_wait, empty, *, on_end):
        self._buffer, self._limits, self._sources, self._positions = buffer, limits, sources, positions
        self._responses, self._placement, self._preferred = responses, placement, preferred
        self._fetch_wait, self._empty, self._early, self._on_end = fetch_wait, empty, empty.in_a_row, on_end
        self._timeout, self._max_wait = limits.timeout, limits.max_wait
        self._buffer_memory, self._max_bytes, self._max_partition_bytes = limits.buffer_memory, limits.max_bytes, limits.max_partition_bytes
        self._fetches = {}

    def fetches(self):
        """Those under way."""
        return list(self._fetches.values())

    @cython.ccall
    def begin(self, node: cython.int, session: object, session_request: object, room: cython.Py_ssize_t, now: cython.double) -> Fetch:
        """A fetch of *session*, whose response may have *room* bytes."""
        reserved: cython.Py_ssize_t = min(room, len(session_request.all_partitions) * self._max_partition_bytes)
        wait: cython.double = min(self._fetch_wait.max_wait(now), self._max_wait) if self._buffer.ready() else self._max_wait
        fetch: Fetch = Fetch(node, session, session_request, reserved, wait, now, self._on_end)
        self.reserved += reserved
        self._fetches[node] = fetch
        return fetch

    def end(self, fetch: Fetch):
        """It has an outcome."""
        self.reserved -= fetch.reserved
        del self._fetches[fetch.node]

    def room(self):
        """Bytes the next response may have; 0 while the buffer is full, which calls ``on_room`` later."""
        room: cython.Py_ssize_t = self.free()
        if not room:
            self._buffer.await_room()
            room = self.free()
        return room

    @cython.ccall
    def free(self, came: cython.Py_ssize_t = 0, released: cython.Py_ssize_t = 0) -> cython.Py_ssize_t:
        """As `room`, once so many bytes have come, of the *released* ones that were reserved for them.

        A buffer without returnable data takes any one response: data of paused partitions must not starve the others.
        """
        reserved: cython.Py_ssize_t = self.reserved - released
        if not reserved and not came and not self._buffer.ready():
            return min(self._max_bytes, self._buffer_memory)  # a broker sends one batch even if it is larger
        room: cython.Py_ssize_t = self._buffer_memory - cython.cast(cython.Py_ssize_t, self._buffer.bytes) - came - reserved
        return min(room, self._max_bytes) if room >= self._max_partition_bytes else 0

    # ---- a fetch that only repeats the last one ---------------------------------------------------------------------

    @cython.ccall
    def repeat(self, now: cython.double, fetch: Fetch, response: UsualResponse) -> NextFetch:
        """Take the response to *fetch*, and begin the fetch that follows. None: it is unusual; nothing has changed."""
        if response.session_id != fetch.session.id:
            return None
        for tp in self._buffer.drained():
            if not self._keeps(fetch, tp):
                return None  # else a turn would change a session
        return self._repeat_nothing(now, fetch) if response.records is None else self._repeat_data(now, fetch, response)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _keeps(self, fetch: Fetch, tp: object) -> cython.bint:
        """As `Sources.keeps`, which need not be asked about what this fetch repeats."""
        return tp is fetch.served or self._sources.keeps(tp)

    @cython.cfunc
    def _repeat_nothing(self, now: cython.double, fetch: Fetch) -> NextFetch:
        room: cython.Py_ssize_t = self.free(0, fetch.reserved)
        if not room or self._empty.is_early(now - fetch.began, fetch.wait):
            return None
        return self._follow(now, fetch, room, {}, None)

    @cython.cfunc
    def _repeat_data(self, now: cython.double, fetch: Fetch, response: UsualResponse) -> NextFetch:
        tp: object = self._named(fetch, response)
        position: object = None if tp is None else self._positions.get(tp)
        if position is None or self._buffer.count(tp):
            return None
        requested: object = fetch.session.partitions[tp]
        if position.generation != requested.generation or position.offset != requested.offset:
            return None
        batches: list = self._whole_batches(position, response.records)
        if batches is None:
            return None
        came: cython.Py_ssize_t = 0
        for batch in batches:
            came += cython.cast(RecordBatch, batch).size
        room: cython.Py_ssize_t = self.free(came, fetch.reserved)
        if not room:
            return None
        position.high_watermark = response.high_watermark
        epoch: object = self._responses.take(now, position, batches, batches, came)
        offset: object = position.offset
        new: object = PartitionRequest(offset, requested.generation, requested.leader_epoch, epoch, requested.topic_id)
        asked: OnePartition = OnePartition(response.topic_id, response.partition, requested.leader_epoch, offset, epoch, self._max_partition_bytes)
        following: NextFetch = self._follow(now, fetch, room, {tp: new}, asked)
        following.fetch.served, following.fetch.asked = position.tp, asked
        return following

    @cython.cfunc
    def _named(self, fetch: Fetch, response: UsualResponse) -> object:
        """As `Session.named`; most often the partition that was served last."""
        asked: OnePartition = fetch.asked
        if asked is not None and asked.partition == response.partition and asked.topic_id == response.topic_id:
            return fetch.served
        return fetch.session.named(response.topic_id, response.partition)

    @cython.cfunc
    def _whole_batches(self, position: object, records: object) -> list:
        """The batches of *records* if the user gets all of them, else None: they are for `FetchResponses`."""
        offset: cython.longlong = position.offset
        batch: RecordBatch
        try:
            batches: list = read_batches(records, decompression_limit=self._limits.decompression_limit, check_crcs=self._limits.check_crcs)
        except CorruptRecordError:
            return None
        for batch in batches:
            if batch.next_offset <= offset or batch.is_control:
                return None
        return batches or None

    @cython.cfunc
    def _follow(self, now: cython.double, fetch: Fetch, room: cython.Py_ssize_t, changes: dict, asked: OnePartition | None) -> NextFetch:
        if self._early:
            self._empty.usual(fetch.node)
        drained: list = self._buffer.take_drained()
        if drained:
            self._fetch_wait.drained(now)
        self.reserved -= fetch.reserved
        request: object = self._sources.again(fetch.node, changes)
        following: Fetch = self.begin(fetch.node, fetch.session, request, room, now)
        for tp in drained:
            if not self._keeps(fetch, tp):  # the user's thread took its data since `repeat` began
                self._placement.place(tp)
        return NextFetch(following, room, self._preferred.rack(now), self._limits, asked, self._timeout)
