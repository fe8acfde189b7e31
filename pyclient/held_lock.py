# cython: language_level=3, freethreading_compatible=True
"""A lock that Ctrl-C never leaves held, and the end of a block that it never divides.

Python may raise KeyboardInterrupt behind any call of interpreted code: behind ``lock.acquire()``, before the ``try``;
in Python 3.14 also between ``with lock:`` and the block. Nothing interrupts compiled code there.
"""
import cython


@cython.final
@cython.no_gc
@cython.cclass
class Held:
    """``with Held(lock):`` holds *lock* in the block, or until this object is gone: an exception before the block drops
    it.

    With a *timeout* in seconds (0: do not wait) the block gets whether the lock is held. Use each object once, unnamed.
    """

    _lock: object
    _timeout: object
    _held: cython.bint

    def __init__(self, lock, timeout=-1):
        self._lock, self._timeout = lock, timeout

    def __enter__(self):
        if self._timeout == 0:
            self._held = self._lock.acquire(False)
        else:
            self._held = self._lock.acquire(True, self._timeout)
        return self._held

    def __exit__(self, kind, error, trace):
        self._release()

    def __dealloc__(self):
        self._release()

    @cython.cfunc
    def _release(self):
        if self._held:
            self._held = False
            self._lock.release()


@cython.cclass
class EmptiedAtExit:
    """A block at whose end *held* is emptied, in one step. A subclass has ``__enter__``."""

    _held: dict

    def __init__(self, held):
        self._held = held

    def __exit__(self, kind, error, trace):
        self._held.clear()
