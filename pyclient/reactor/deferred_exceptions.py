# cython: language_level=3, freethreading_compatible=True
"""Holds back exceptions that other threads raise into this one (``PyThreadState_SetAsyncExc``: the time limits of
dramatiq, stopit, func_timeout) while it leads a reactor.

They would be raised between any two steps of interpreted code, as those of signal handlers
(`pyclient.reactor.deferred_signals`). The interpreter finds the thread to raise in by the number in its state. In the
block another state, which runs nothing, has this thread's number. Not on free-threaded builds: there an exception may
still be raised in the block.
"""
import cython
from cython.cimports.pyclient.reactor.deferred_exceptions import defer_exceptions, raise_deferred


@cython.final
@cython.no_gc
@cython.cclass
class DeferredExceptions:
    """``with DeferredExceptions():`` an exception raised into this thread in the block is raised behind it.

    Blocks may be nested. Use each object once, unnamed. The field is declared in deferred_exceptions.pxd.
    """

    def __enter__(self):
        self._box = defer_exceptions()

    def __exit__(self, kind, error, trace):
        self._release()

    def __dealloc__(self):
        self._release()

    @cython.cfunc
    def _release(self) -> object:
        box = self._box
        if box != cython.NULL:
            self._box = cython.NULL
            raise_deferred(box)
