# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Messages of the formats 0 and 1 (Kafka before 0.11) as records of format 2, which is what everything else reads.

A compressed message holds others. In format 1 their offsets count from the first of them, and the outer offset is that
of the last; if the broker sets timestamps (LogAppendTime), the outer one is that of all. In format 0 they have their
own offsets and no timestamps. What Java's reader accepts is accepted, except offsets that do not ascend.
Two passes: every message is checked, then written. A record is never larger than its message and its parts lie no
further back, so decompressed messages are overwritten in place: reading takes no more memory than decompressing.
"""
import cython
from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER
from cython.cimports.libc.stdint import INT32_MAX, int32_t, int64_t, uint64_t
from cython.cimports.libc.string import memmove
from cython.cimports.pyclient.codec.batch_headers import Message, read_message
from cython.cimports.pyclient.codec.encode import put_varint, varint_size
from cython.cimports.pyclient.codec.parse import int32_at

from zlib import crc32

from pyclient.codec.compression import Compression, decompress
from pyclient.codec.frames import with_right_lz4_checksum
from pyclient.codec.memory import unwritten
from pyclient.errors import CorruptRecordError

OVERHEAD = cython.declare(cython.Py_ssize_t[2], [26, 34])  # size of a message without key and value, by its format


@cython.cfunc
@cython.inline
def _address(view: object) -> cython.p_uchar:
    return cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(view).buf)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _verify(message: cython.pointer(Message), data: object) -> cython.int:
    """Compare the checksum of the message that *data* is."""
    found = crc32(data[16:])
    if found != message.crc:
        raise CorruptRecordError(
            f"the CRC-32 of its message at offset {message.offset} is 0x{found:08x}, the message says 0x{message.crc:08x}: "
            "it was damaged on a disk or on the way. Read it again; if it stays so, seek past it")
    return 0


@cython.cfunc
@cython.exceptval(-1, check=False)
def _fits(at: cython.p_const_uchar, rest: cython.Py_ssize_t, magic: cython.int) -> cython.bint:
    """Whether a whole message is at *at*. Cut off is what ends before its end: Java reads the others then."""
    size: cython.Py_ssize_t
    if rest < 17:
        return False
    size = 12 + cython.cast(cython.Py_ssize_t, int32_at(at + 8))
    if size < 26:
        raise CorruptRecordError(f"it holds a message of {size} bytes, and the smallest takes 26")
    if size > rest:
        return False
    if at[16] != magic:
        raise CorruptRecordError(f"it holds a message of format {at[16]} in one of format {magic}")
    if size < OVERHEAD[magic] or at[17] & 7:
        raise CorruptRecordError("it holds a message that is compressed again or too short for its format")
    return True


@cython.cfunc
def _inner_messages(wrapper: cython.pointer(Message), data: object, limit: cython.Py_ssize_t) -> object:
    """The messages in a compressed one."""
    codec: cython.int = wrapper.attributes & 7
    if wrapper.value_len < 0:
        raise CorruptRecordError("it is a compressed message without a value")
    start: cython.Py_ssize_t = wrapper.value - _address(data)
    payload = data[start : start + wrapper.value_len]
    if codec == Compression.LZ4 and wrapper.magic == 0:
        payload = with_right_lz4_checksum(payload)
    return decompress(codec, payload, limit)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put(out: cython.p_uchar, data: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.p_uchar:
    """As `put_bytes`, when *data* may overlap what is written."""
    out = put_varint(out, size)
    if size > 0:
        memmove(out, data, size)
        out += size
    return out


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_message(out: cython.p_uchar, message: cython.pointer(Message), timestamp: int64_t, delta: int64_t) -> cython.p_uchar:
    """Write the message as a record at *out*, which may be where the message begins or before it."""
    body: cython.Py_ssize_t = 2 + varint_size(timestamp) + varint_size(delta) + varint_size(message.key_len) + varint_size(message.value_len)
    body += max(0, message.key_len) + max(0, message.value_len)
    out = put_varint(out, body)
    out[0] = 0  # attributes
    out = put_varint(out + 1, timestamp)
    out = put_varint(out, delta)
    out = _put(out, message.key, message.key_len)
    out = _put(out, message.value, message.value_len)
    out[0] = 0  # headers
    return out + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _rewrite(
    at: cython.p_const_uchar, out: cython.p_uchar, count: int32_t, base_timestamp: int64_t, broker_timed: cython.bint
) -> cython.p_uchar:
    """Write *count* checked messages as records from *out* on; return their end."""
    message: Message
    first: int64_t = 0
    timestamp: int64_t
    position: int32_t
    for position in range(count):
        read_message(at, cython.address(message))
        at += message.size
        if position == 0:
            first = message.offset
        timestamp = 0 if broker_timed else cython.cast(
            int64_t, cython.cast(uint64_t, message.timestamp) - cython.cast(uint64_t, base_timestamp))
        out = _put_message(out, cython.address(message), timestamp, message.offset - first)
    return out


@cython.final
@cython.cclass
class UpgradedRecords:
    """What `read` made of the messages; the fields are declared in old_messages.pxd."""

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def read(self, messages: object, limit: cython.Py_ssize_t, check_crc: cython.bint) -> cython.int:
        outer: Message
        last: int64_t
        compressed: cython.bint
        broker_timed: cython.bint
        self.check_crc = check_crc
        if not read_message(_address(messages), cython.address(outer)):
            raise CorruptRecordError(f"the key or value of its message at offset {outer.offset} is longer than the message")
        compressed = outer.attributes & 7 != 0
        broker_timed = compressed and outer.magic == 1 and outer.attributes & 8 != 0
        self.records = memoryview(unwritten(0 if compressed else len(messages)))
        if compressed:
            if check_crc:
                _verify(cython.address(outer), messages)
            messages = self.records = _inner_messages(cython.address(outer), messages, limit)
        last = self.check(messages, outer.magic)
        if broker_timed:
            self.base_timestamp = outer.timestamp
        if compressed and outer.magic == 1:
            if last > outer.offset:
                raise CorruptRecordError(f"its offset {outer.offset} is less than {last}, the number of its last message")
            self.base_offset += outer.offset - last
        elif outer.offset - self.base_offset > INT32_MAX:
            raise CorruptRecordError(f"the offset of its first message is {self.base_offset}, too far from its own")
        begin: cython.p_uchar = _address(self.records)
        at: cython.p_const_uchar = _address(messages)
        with cython.nogil:
            self.size = _rewrite(at, begin, self.count, self.base_timestamp, broker_timed) - begin
        return 0

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def check(self, messages: object, magic: cython.int) -> int64_t:
        """Check every message; return the last one's offset, as it is written there."""
        message: Message
        start: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = len(messages)
        begin: cython.p_const_uchar = _address(messages)
        last: int64_t = -1
        while _fits(begin + start, size - start, magic):
            if not read_message(begin + start, cython.address(message)):
                raise CorruptRecordError(f"the key or value of its message at offset {message.offset} is longer than the message")
            if self.check_crc:
                _verify(cython.address(message), messages[start : start + message.size])
            if self.count == 0:
                self.base_offset = message.offset
                self.base_timestamp = message.timestamp
            if message.offset <= last or message.offset - self.base_offset > INT32_MAX:
                raise CorruptRecordError(f"the offset {message.offset} of its message {self.count} does not follow that before it")
            last = message.offset
            self.sound = start = start + message.size
            self.count += 1
        if self.count == 0:
            raise CorruptRecordError("it is compressed and holds no message")
        return last
