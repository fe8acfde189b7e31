# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""When the first request of a transaction may leave: not while the markers of the last one are being written.

A coordinator answers EndTxn before the partitions have their markers, and begins no other transaction of the id until
they have. Asked too early, it answers CONCURRENT_TRANSACTIONS (V1), or the broker asks it again after 20 ms (V2). A
client that begins at once is sooner done if it waits a millisecond or two; how long is learned from the answers. It
runs no interpreted code: the compiled exchange of transactions asks it too.
"""
import cython

FIRST_S = cython.declare(cython.double, 0.0005)
"""The first pause, after a transaction that came too early."""
LONGEST_S = cython.declare(cython.double, 0.016)
"""A longer pause gains too little on the 20 ms of the broker: begin again without one."""
GROWTH = cython.declare(cython.double, 1.5)
DECAY = cython.declare(cython.double, 127.0 / 128.0)
"""Of each transaction that did not come too early."""
LATE_S = cython.declare(cython.double, 0.015)
"""An answer that took so much longer than that of EndTxn was to a request that came too early."""


@cython.final
@cython.cclass
class MarkerPause:
    """Of one transactional producer. Times are those of the client's clock, in seconds."""

    def __init__(self):
        self.clear()

    @cython.ccall
    def clear(self) -> cython.void:
        """The coordinator has no transaction that ends: that of another id, or one that InitProducerId has awaited."""
        self.due, self._first = 0.0, False

    @cython.ccall
    def ended(self, now: cython.double, took: cython.double) -> cython.void:
        """EndTxn was answered *now*, *took* seconds after it was sent."""
        self.due, self._end_took, self._first, self.left_at = now + self.pause, took, True, 0.0

    @cython.ccall
    def left(self, now: cython.double) -> cython.void:
        """A Produce request of the next transaction leaves; the first one counts."""
        if not self.left_at:
            self.left_at = now

    @cython.ccall
    def stored(self, now: cython.double) -> cython.void:
        """The answer to a Produce request came."""
        if self._first:
            self.answered(now - self.left_at, False)

    @cython.ccall
    def answered(self, took: cython.double, refused: cython.bint) -> cython.void:
        """The answer to a request of the next transaction came *took* seconds after the request; the first one counts.

        *refused*: with CONCURRENT_TRANSACTIONS.
        """
        if not self._first:
            return
        self._first = False
        if refused or took >= self._end_took + LATE_S:
            self.pause = max(FIRST_S, self.pause * GROWTH)
            if self.pause > LONGEST_S:
                self.pause = 0.0
        else:
            self.pause *= DECAY
