# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""What a loop's function returns, and the usual record's way: the function called with it, its one output sent.

Compiled, for it is done per record. All that is unusual is left to the loop. Independent of clients and transactions.
"""
import cython

from pyclient.errors import RecordTooLargeError, SerializationError

UNSENDABLE = (SerializationError, RecordTooLargeError, TypeError, ValueError)
"""What a producer raises because of the output itself."""
_NO_HEADERS = cython.declare(tuple, ())


@cython.freelist(64)
@cython.cclass
class Output:
    """A record to be written, as `Producer.send` takes it. Immutable; compares and hashes by value; pickles."""

    __match_args__ = ("topic", "value", "key", "partition", "timestamp", "headers")

    def __init__(self, topic, value=None, key=None, partition=None, timestamp=None, headers=_NO_HEADERS):
        self.topic, self.value, self.key = topic, value, key
        self.partition, self.timestamp, self.headers = partition, timestamp, headers

    def __repr__(self):
        fields = ", ".join([f"{name}={each!r}" for name, each in zip(self.__match_args__, _fields(self), strict=True)])
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return _fields(self) == _fields(other)

    def __hash__(self):
        return hash(_fields(self))

    def __reduce__(self):
        return type(self), _fields(self)


@cython.cfunc
def _fields(output: Output) -> tuple:
    """In the order of the constructor."""
    return (output.topic, output.value, output.key, output.partition, output.timestamp, output.headers)


@cython.ccall
def send_each(records: object, transform: object, send: object, otherwise: object) -> object:
    """Call *transform* with each record and *send* its output; returns how many outputs were sent here.

    *otherwise* gets the record, what *transform* returned, and what it or *send* raised: that is no `Output`, or was
    not sent.
    """
    output: Output
    given: object
    sent: cython.Py_ssize_t = 0
    for record in records:
        try:
            given = transform(record)
        except Exception as error:  # noqa: BLE001  # whatever a user's function raises
            otherwise(record, None, error)
            continue
        if given is None:
            continue
        if not isinstance(given, Output):
            otherwise(record, given, None)
            continue
        output = given
        try:
            if output.partition is None and output.timestamp is None and output.headers is _NO_HEADERS:
                send(output.topic, output.value, output.key)  # by position: names cost a dict
            else:
                send(output.topic, output.value, output.key, partition=output.partition, timestamp=output.timestamp, headers=output.headers)
        except UNSENDABLE as error:
            otherwise(record, output, error)
            continue
        sent += 1
    return sent
