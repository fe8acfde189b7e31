# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Linux: the poller of a reactor is one epoll, edge-triggered, in which several threads may sleep.

Of an edge-triggered epoll the kernel wakes one sleeper per event, the one that came last: a thread that waits for its
answer, not the background thread. The thread that gets an event must handle it: it comes once.
"""
import cython
from cython.cimports.cpython.exc import PyErr_CheckSignals
from cython.cimports.libc.errno import EINTR
from cython.cimports.libc.math import INFINITY, ceil
from cython.cimports.pyclient.reactor.epoll import (
    MOST_EVENTS, Event, close_descriptor, new_eventfd, new_epoll, new_timer, notify, set_timer, sleep_in, unwatch, watch,
)

import os

LONGEST_S = cython.declare(cython.double, 1e6)  # whose milliseconds are an int
EVENTFD = cython.declare(cython.ulonglong, 0xFFFFFFFF)
TIMER = cython.declare(cython.ulonglong, 0xFFFFFFFE)


@cython.final
@cython.cclass
class EpollPoller:
    """Implements `pyclient.reactor.pollers.Poller`. The fields are declared in epoll_poller.pxd."""

    shared = True
    wakes_any = True
    arms = False

    def __cinit__(self):
        self._epoll = self._eventfd = self._timer = -1

    def __init__(self):
        self._watched = {}
        self._epoll, self._eventfd, self._timer = new_epoll(), new_eventfd(), new_timer()
        if self._epoll < 0 or self._eventfd < 0 or self._timer < 0:
            self.close()
            raise OSError("no epoll can be made: most likely too many files are open (ulimit -n)")
        watch(self._epoll, self._eventfd, EVENTFD, False)
        watch(self._epoll, self._timer, TIMER, False)

    def register(self, descriptor: cython.int, sink):
        """Call *sink* with READABLE and WRITABLE, in the thread that leads, each time one of them becomes true."""
        self._generation += 1
        token: cython.ulonglong = (cython.cast(cython.ulonglong, self._generation & 0x7FFFFFFF) << 32) | cython.cast(cython.uint, descriptor)
        error: cython.int = watch(self._epoll, descriptor, token, True)
        if error:
            raise OSError(error, os.strerror(error))
        self._watched[token] = sink
        return token

    def arm(self, token, events):
        """The epoll reports changes without being asked."""

    def unregister(self, token: cython.ulonglong):
        """Call it before the descriptor is closed. An event that another thread has got already is dropped."""
        if self._watched.pop(token, None) is not None:
            unwatch(self._epoll, cython.cast(cython.int, token & 0xFFFFFFFF))

    def sleep(self, timeout):
        """Events as (sink, READABLE | WRITABLE), after at most *timeout* seconds (None: no limit); none after `wake`.

        Call it without the reactor's lock. Runs the handlers of signals, which may raise.
        """
        events: Event[MOST_EVENTS]
        count: cython.int
        limit: cython.int = -1
        if timeout is not None:
            limit = cython.cast(cython.int, ceil(min(cython.cast(cython.double, timeout), LONGEST_S) * 1000))
        with cython.nogil:
            count = sleep_in(self._epoll, limit, events)
        if count < 0:
            if count == -EINTR:
                PyErr_CheckSignals()
                return []
            raise OSError(-count, os.strerror(-count))
        return self._found(count, events)

    @cython.cfunc
    def _found(self, count: cython.int, events: cython.pointer(Event)) -> list:
        at: cython.int
        found: list = []
        for at in range(count):
            sink = self._watched.get(events[at].token)
            if sink is not None:
                found.append((sink, events[at].events))
        return found

    def wake(self):
        """One sleeper returns at once; without one, the next does. Any thread and any signal handler may call it."""
        notify(self._eventfd)

    def set_deadline(self, at):
        """A sleeper returns at this time of the monotonic clock (None: for no deadline)."""
        set_timer(self._timer, INFINITY if at is None else cython.cast(cython.double, at))

    def close(self):
        """Idempotent. Wakes no sleeper: none may sleep."""
        self._watched = {}
        close_descriptor(self._epoll)
        close_descriptor(self._eventfd)
        close_descriptor(self._timer)
        self._epoll = self._eventfd = self._timer = -1

    def __dealloc__(self):
        close_descriptor(self._epoll)
        close_descriptor(self._eventfd)
        close_descriptor(self._timer)
