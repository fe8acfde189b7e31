# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Leaves an answer without a waiter in its socket, so that no thread wakes for it.

The loop, which sleeps, pauses its reading until a thread acts anyway: the next record reads the answer of the last
one. A timer ends that, so that every answer is read soon.
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
        self._paused = -1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def pause(self, descriptor: cython.int, now: cython.double) -> cython.int:
        """A request was written to *descriptor*: the loop does not read its answer, unless that is to be timed."""
        self._requests = (self._requests + 1) % TIMED
        if not self._requests or not self._set_timer(now) or not self._pause(descriptor):
            self.resume()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def is_paused(self, descriptor: cython.int) -> cython.bint:
        """Whether the loop does not read *descriptor*."""
        return self._paused == descriptor

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def resume(self) -> cython.int:
        """The loop reads what comes, and what lies in the socket already."""
        if self._paused >= 0:
            watch(self._epoll, self._paused, True)  # nothing if it was closed
            self._paused = -1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def end(self) -> cython.int:
        """It was late enough: resume, and stop the timer."""
        self.resume()
        set_time(self._timer, INFINITY)
        self._rings_at = 0  # it may have been set again since it rang, by the thread that had the lock
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _pause(self, descriptor: cython.int) -> cython.bint:
        if self._paused != descriptor:
            self.resume()
            if not watch(self._epoll, descriptor, False):
                return False
            self._paused = descriptor
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _set_timer(self, now: cython.double) -> cython.bint:
        """Later, unless it was set a moment ago: one call of the system for many records."""
        if self._rings_at < now + self._patience / 2:
            self._rings_at = now + self._patience
            return set_time(self._timer, self._rings_at)
        return True
