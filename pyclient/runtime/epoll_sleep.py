# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The sleep of a loop that is lent, in compiled code: its thread handles what it knows without waking the loop."""
import cython
from cython.cimports.libc.math import INFINITY, ceil
from cython.cimports.pyclient.runtime.epoll import set_time, sleep_on, timer

import time

_monotonic = time.monotonic
LONGEST_S = cython.declare(cython.double, 1e6)  # whose milliseconds are an int


@cython.final
@cython.cclass
class EpollSleep:
    """Sleeps on an *epoll*, for its `LendingSelector`. The fields are declared in epoll_sleep.pxd."""

    def __init__(self, epoll: cython.int, selector, acquire, give_back):
        self._epoll, self._selector, self._acquire, self._give_back = epoll, selector, acquire, give_back

    def sleep(self, timeout):
        """Return after *timeout* seconds (None: never), or when the loop has something to do."""
        until: cython.double = INFINITY if timeout is None else _monotonic() + timeout
        left: cython.double = until if timeout is None else timeout
        while left > 0 and self._handle(self._sleep(-1 if left == INFINITY else cython.cast(cython.int, ceil(min(left, LONGEST_S) * 1000)))):
            left = until if until == INFINITY else until - cython.cast(cython.double, _monotonic())

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _sleep(self, timeout_ms: cython.int) -> cython.int:
        """How many descriptors are readable; 0 if the loop has to look."""
        count: cython.int
        self._give_back()
        with cython.nogil:
            count = sleep_on(self._epoll, timeout_ms, self._ready)
        if not self._acquire(False):
            self._selector.take_back()
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _handle(self, count: cython.int) -> cython.bint:
        """Whether all that is readable was handled, and the loop has nothing to do for that."""
        at: cython.int
        for at in range(count):
            self._selector.scheduled = False
            if not self._selector.on_readable(self._ready[at]) or self._selector.scheduled:
                return False
        return count > 0


def new_timer() -> int:
    """The descriptor of a new timer (a timerfd), which is readable from its time on.

    Raises:
        OSError: no descriptor is left.
    """
    descriptor: cython.int = timer()
    if descriptor < 0:
        raise OSError("no timer can be made: most likely too many files are open (ulimit -n)")
    return descriptor


def stop_timer(descriptor: cython.int):
    """Make a timer unreadable until it is set again."""
    set_time(descriptor, INFINITY)
