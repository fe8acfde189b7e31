# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Takes the usual response to a fetch and writes the fetch that follows, in compiled code and one call.

All is then as if `Connection` and `ConnectionPool` had done it. What the response means is decided in
`pyclient.core.fetching.under_way`.
"""
import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.pyclient.codec.encode import put_int32
from cython.cimports.pyclient.codec.fetch import UsualResponse, usual_response
from cython.cimports.pyclient.core.fetching.under_way import Fetch, FetchesUnderWay, NextFetch
from cython.cimports.pyclient.net.sockets import send_pieces

from pyclient.core.manager import NotSent
from pyclient.errors import KafkaError

SIZE_BYTES = cython.declare(cython.Py_ssize_t, 4)


@cython.final
@cython.cclass
class FetchExchange:
    """Of one connection that has been used for fetches. *figures* count requests to the node and their latencies, and
    fetches and their latencies. The fields are declared in fetch_exchange.pxd.
    """

    def __init__(self, connection, node, clock, figures: tuple):
        self.connection, self._node, self._clock = connection, node, clock
        self._requests, self._reader, self._silence = connection.requests, connection.reader, connection.silence
        self._in_flight = self._requests.requests
        self.descriptor = connection.socket.fileno()
        self._sent, self._latency, self._fetches, self._fetch_latency = figures

    def run(self, fetches: FetchesUnderWay, fetch: Fetch, size: cython.Py_ssize_t, frame: bytes) -> object:
        """The only request, *fetch*, was answered by *frame*; so many bytes came, the frame's size included.

        Returns the fetch that was written. None, and nothing is changed: the response is not a usual one.
        """
        entry: object = self._in_flight[0]
        now: cython.double = self._clock()
        ends_at: object = self.connection.session.ends_at
        if self._node.silent_since is not None or (ends_at is not None and now >= ends_at):
            return None
        response: UsualResponse = usual_response(frame, entry.correlation_id)
        following: NextFetch = None if response is None else fetches.repeat(now, fetch, response)
        if following is None:
            return None
        self._note_answer(entry, now, size)
        self._write(entry, self._encoded(following, entry.version), following.timeout, following.fetch.wait, following.fetch.done)
        return following.fetch

    @cython.cfunc
    def _note_answer(self, entry: object, now: cython.double, size: cython.Py_ssize_t) -> object:
        latency: cython.double = (now - cython.cast(cython.double, entry.sent_at)) * 1000
        came: object = self._reader.bytes_in + size
        self._in_flight.popleft()
        self._reader.bytes_in = came
        self._silence.heard_at, self._silence.bytes_in, self._silence.since = now, came, None
        self.connection.idle_since = self._node.answered_at = now
        self._latency.add(latency, 1, latency, now)
        self._fetches.add(1)
        self._fetch_latency.add(latency, 1, latency, now)

    @cython.cfunc
    def _encoded(self, following: NextFetch, version: cython.int) -> bytes:
        try:
            return following.encoded(version, self._requests.next_id(), self.connection.client_id)
        except Exception as error:  # a defect; the fetch that has begun needs an outcome
            following.fetch.done(self._clock(), NotSent(KafkaError(f"a fetch could not be encoded: {error!r}")))
            raise

    @cython.cfunc
    def _write(self, entry: object, data: bytes, timeout: cython.double, held: cython.double, done: object) -> object:
        """The request is in flight in place of *entry*."""
        now: cython.double = self._clock()
        connection: object = self.connection
        size: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
        at: cython.p_char = PyBytes_AS_STRING(data)
        before = cython.declare(cython.char[4])
        taken: cython.Py_ssize_t
        entry.correlation_id, entry.sent_at, entry.deadline, entry.held, entry.done = self._requests.correlation_id, now, now + timeout, held, done
        entry.end = connection.bytes_out = connection.bytes_out + SIZE_BYTES + size
        self._in_flight.append(entry)
        self._sent.add(1)
        put_int32(cython.cast(cython.p_uchar, before), size)
        with cython.nogil:
            taken = send_pieces(self.descriptor, before, SIZE_BYTES, at, size, at, 0)
        if taken < SIZE_BYTES + size:
            connection.write_rest((size.to_bytes(SIZE_BYTES, "big") + data)[taken:])
