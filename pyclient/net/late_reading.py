# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Leaves an answer without a waiter in its socket, so that no thread wakes for it.

The loop, which sleeps, does not listen to the socket until a thread acts anyway: the next record reads the answer of
the last one. A timer ends that, so that every answer is read soon.
"""
import cython
from cython.cimports.libc.math import INFINITY
from cython.cimports.pyclient.runtime.epoll import set_time, watch

TIMED = cython.declare(cython.int, 16)  # each so many answers one is read as soon as it comes: for the latency that metrics show


@cython.final
@cython.cclass
class LateReading:
    """Of one loop's epoll and one socket at a time. The fields are declared in late_reading.pxd.

    *timer* becomes readable after *patience* seconds, or half of that; the loop's thread calls `end` then. All is
    called with the lock of the loop.
    """

    def __init__(self, epoll: cython.int, timer: cython.int, patience: cython.double):
        self._epoll, self._timer, self._patience = epoll, timer, patience
        self._deaf = -1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin(self, descriptor: cython.int, now: cython.double) -> cython.bint:
        """A request was written to *descriptor*: whether the loop does not listen to its answer."""
        self._requests = (self._requests + 1) % TIMED
        if not self._requests or not self._set_timer(now) or not self._stop_listening(descriptor):
            self.listen()
            return False
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def is_deaf(self, descriptor: cython.int) -> cython.bint:
        """Whether the loop does not listen to *descriptor*."""
        return self._deaf == descriptor

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def listen(self) -> cython.int:
        """The loop wakes for what comes, and for what lies in the socket already."""
        if self._deaf >= 0:
            watch(self._epoll, self._deaf, True)  # nothing if it was closed
            self._deaf = -1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def end(self) -> cython.int:
        """It was late enough: listen, and stop the timer."""
        self.listen()
        set_time(self._timer, INFINITY)
        self._rings_at = 0  # it may have been set again since it rang, by the thread that had the lock
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _stop_listening(self, descriptor: cython.int) -> cython.bint:
        if self._deaf != descriptor:
            self.listen()
            if not watch(self._epoll, descriptor, False):
                return False
            self._deaf = descriptor
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _set_timer(self, now: cython.double) -> cython.bint:
        """Later, unless it was set a moment ago: one call of the system for many records."""
        if self._rings_at < now + self._patience / 2:
            self._rings_at = now + self._patience
            return set_time(self._timer, self._rings_at)
        return True
