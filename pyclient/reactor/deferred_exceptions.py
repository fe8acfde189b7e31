# cython: language_level=3, freethreading_compatible=True
"""Holds back what is raised into this thread from outside while it leads a reactor: by signal handlers, and by other
threads (``PyThreadState_SetAsyncExc``: the time limits of dramatiq, stopit, func_timeout).

Between any two steps of interpreted code it would leave the client's state half changed; or a handler may call the
client, and wait for a lock that its own thread holds. The interpreter runs handlers in the thread whose number it
knows as the main one's: meanwhile it knows none. It finds the thread to raise in by the number in its state: meanwhile
another state, which runs nothing, has this thread's number. On free-threaded builds other threads' exceptions are not
held back.
"""
import cython
from cython.cimports.cpython.exc import PyErr_CheckSignals
from cython.cimports.pyclient.reactor.deferred_exceptions import (
    defer_exceptions, defer_signals, keep_no_spare, keep_spare, raise_deferred, restore_signals,
)

import atexit

if keep_spare():
    raise MemoryError


@atexit.register
def _keep_no_spare():
    """The interpreter frees the states of all threads next, and runs finalizers behind that."""
    keep_no_spare()


@cython.final
@cython.no_gc
@cython.cclass
class DeferredExceptions:
    """From its creation until `release`, in the thread that created it. They may be nested; release each one once.

    The fields are declared in deferred_exceptions.pxd.
    """

    def __cinit__(self):
        self._main = defer_signals()
        self._box = defer_exceptions()

    def release(self):
        """Raise what has come meanwhile. Of several handlers that raise all have run, and the first one's is raised."""
        main: cython.ulong = self._main
        self._end()
        if main:
            _handle_signals()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.release()

    def __dealloc__(self):
        self._end()

    @cython.cfunc
    def _end(self) -> object:
        main, box = self._main, self._box
        self._main, self._box = 0, cython.NULL
        if main:
            restore_signals(main)
        if box != cython.NULL:
            raise_deferred(box)


@cython.cfunc
def _handle_signals() -> object:
    """A handler that raises leaves the others to the next look."""
    raised = None
    while True:
        try:
            PyErr_CheckSignals()
        except BaseException as error:
            raised = raised or error
        else:
            break
    if raised is not None:
        raise raised
