# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""EndTxn that commits, in the version that answers with the next producer id and epoch (KIP-890), and its usual answer.

Each commit differs from the last one in a few numbers at fixed places. Tested byte for byte against kio. Any other
answer is for `decode_response`.
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.libc.string import memcmp
from cython.cimports.pyclient.codec.encode import put_int16, put_int32, put_int64
from cython.cimports.pyclient.codec.parse import int64_at

from pyclient.codec.apis import Api
from pyclient.codec.messages import encode_request

SIZE_BYTES = cython.declare(cython.int, 4)
CORRELATION_ID_AT = cython.declare(cython.int, 8)  # behind the frame's size, API and version
FROM_END = cython.declare(cython.int, 12)  # producer id, epoch, whether to commit, tags
USUAL = cython.declare(bytes, bytes(7))  # the header's tags, no throttle time, no error


@cython.final
@cython.cclass
class CommitFrames:
    """Of one transactional id; *version* is that of EndTxn. The fields are declared in end_txn.pxd."""

    def __init__(self, version: cython.int, client_id: str | None, transactional_id: str):
        fields = {"transactional_id": transactional_id, "producer_id": 0, "producer_epoch": 0, "committed": True}
        data: bytes = encode_request(Api.END_TXN, version, 0, client_id, fields)
        self.frame = bytearray(len(data).to_bytes(SIZE_BYTES, "big") + data)

    @cython.ccall
    def request(self, correlation_id: cython.longlong, producer_id: cython.longlong, epoch: cython.int) -> bytearray:
        """The request's bytes, the frame's size included. They change with the next call."""
        at: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.frame))
        end: cython.p_uchar = at + PyByteArray_GET_SIZE(self.frame)
        put_int32(at + CORRELATION_ID_AT, correlation_id)
        put_int64(end - FROM_END, producer_id)
        put_int16(end - FROM_END + 8, epoch)
        self.correlation_id = correlation_id
        return self.frame

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reads(self, at: cython.p_char, came: cython.Py_ssize_t) -> cython.bint:
        """Whether these bytes are the answer to the last request, whole and alone, and say that it was carried out.

        `producer_id` and `epoch` are those of the next transaction then.
        """
        answer: cython.p_uchar = cython.cast(cython.p_uchar, at)
        expected: cython.uchar[8]
        if came != ANSWER:
            return False
        put_int32(expected, ANSWER - SIZE_BYTES)
        put_int32(cython.address(expected[4]), self.correlation_id)
        if memcmp(answer, expected, 8) or memcmp(answer + 8, cython.cast(cython.p_char, USUAL), 7) or answer[25]:
            return False
        self.producer_id = int64_at(answer + 15)
        self.epoch = (cython.cast(cython.int, answer[23]) << 8) | answer[24]
        return self.producer_id >= 0 and self.epoch < 32768

    def is_answered_by(self, frame: bytes) -> bool:
        """As `reads`, of a frame with its size."""
        return self.reads(PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
