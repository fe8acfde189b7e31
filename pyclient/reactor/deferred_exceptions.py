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
    Deferral, defer_exceptions, defer_signals, keep_no_spare, keep_spare, raise_deferred, restore_signals,
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
        self._deferral = begin_deferral()

    def release(self):
        """Raise what has come meanwhile. Of several handlers that raise all have run, and the first one's is raised."""
        deferral: Deferral = self._deferral
        self._deferral.began = False
        end_deferral(deferral)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.release()

    def __dealloc__(self):
        if self._deferral.began:
            _let_in(self._deferral)


@cython.cfunc
@cython.exceptval(check=False)
def begin_deferral() -> Deferral:
    """As `DeferredExceptions`, which a reactor would make twice for each record."""
    begun: Deferral
    begun.began, begun.main, begun.box = True, defer_signals(), defer_exceptions()
    return begun


@cython.cfunc
def end_deferral(deferral: Deferral) -> object:
    """As `DeferredExceptions.release`, in the thread that began it."""
    _let_in(deferral)
    if deferral.main:
        _handle_signals()


@cython.cfunc
@cython.exceptval(check=False)
def _let_in(deferral: Deferral) -> cython.void:
    if deferral.main:
        restore_signals(deferral.main)
    if deferral.box != cython.NULL:
        raise_deferred(deferral.box)


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
