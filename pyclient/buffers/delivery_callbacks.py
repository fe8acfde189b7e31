# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The callbacks of deliveries: which ones are taken, and what a batch's result calls for them.

Users' callbacks run where the producer's observer dispatches them; `asyncio.wait` is woken on its own loop.
Knows a `BatchResult` by its methods only: `when_done`, `forget`, `see` and ``observer``.
"""
import cython
from cython.cimports.cpython.function import PyFunction_Check, PyFunction_GetCode
from cython.cimports.cpython.method import PyMethod_Check, PyMethod_Function

from functools import partial
from types import BuiltinMethodType

from pyclient.foreign_calls import check_on_delivery

_SLOTS = cython.declare(cython.size_t, 64)
_checked: list = [(None, 0)] * 64  # in the slot of its address: (code or class of a callback that was taken, its shape)


@cython.ccall
def checked_callback(callback: object) -> object:
    """Return *callback*; raise TypeError when `check_on_delivery` refuses it.

    The check takes longer than a send, so what it accepts is remembered: by the code of functions, methods and partials
    (closures and bound methods are new objects at each send), by the class of other objects. Built-in functions are
    not checked, and no callback is kept alive.
    """
    shape: cython.Py_ssize_t = 0
    target: object = callback
    if not PyFunction_Check(target):
        if type(target) is partial:
            shape = 2 + 2 * len(target.args) + 1024 * len(target.keywords)
            target = target.func
        if PyMethod_Check(target):
            shape += 1
            target = cython.cast(object, PyMethod_Function(target))
        elif type(target) is BuiltinMethodType:
            return callback
    key: object = cython.cast(object, PyFunction_GetCode(target)) if PyFunction_Check(target) else type(target)
    slot: cython.size_t = (cython.cast(cython.size_t, cython.cast(cython.p_void, key)) >> 4) % _SLOTS
    known: tuple = _checked[slot]
    if known[0] is not key or known[1] != shape:
        check_on_delivery(callback)
        if PyFunction_Check(target) or PyFunction_Check(key.__call__):
            _checked[slot] = key, shape
    return callback


@cython.freelist(512)
@cython.cclass
class UserCallback:
    """What a result calls for *callback* of a user, who gets *deliveries*: a `Delivery` or `Deliveries`.

    Equal when both are: `forget` finds it. *see* reports failures as seen; None: those of record *index*.
    """

    def __call__(self):
        """Report the failure as seen, then dispatch: a flush() that ends meanwhile must not report it."""
        callback, deliveries = self._callback, self._deliveries
        if self._see is None:
            self._result.see(self._index)
        else:
            self._see()
        self._observer.dispatch(lambda: callback(deliveries))

    def __eq__(self, other):
        if not isinstance(other, UserCallback):
            return NotImplemented
        one: UserCallback = other
        return self._callback == one._callback and self._deliveries == one._deliveries

    __hash__ = None


class WaiterCallback:
    """What a result calls for `asyncio.wait`, which only counts: the user has seen no failure yet.

    One object for each pair of *callback* and *deliveries*: identity finds one of thousands in a batch fast.
    """

    __slots__ = ("_observer", "_pair", "_wake")

    def __init__(self, deliveries, callback, observer, wake):
        self._pair = callback, deliveries
        self._observer = observer
        self._wake = wake

    def __call__(self):
        self.discard()
        self._wake(*self._pair)

    def discard(self):
        """The pair is not waited for any more."""
        self._observer.waiters.pop(self._pair, None)


@cython.cfunc
def user_callback(deliveries: object, callback: object, result: object, index: cython.int, see: object) -> UserCallback:
    """The only way to make one. *callback* was checked."""
    made: UserCallback = UserCallback.__new__(UserCallback)
    made._deliveries = deliveries
    made._callback = callback
    made._observer = result.observer
    made._result = result
    made._index = index
    made._see = see
    return made


@cython.cfunc
def add_callback(deliveries: object, callback: object, result: object, index: cython.int, see: object) -> object:
    """Call ``callback(deliveries)`` when *result* is done."""
    result.when_done(_called_for(deliveries, checked_callback(callback), result, index, see))


@cython.cfunc
def remove_callback(deliveries: object, callback: object, result: object) -> object:
    """Undo `add_callback` as often as it was called with these; returns how often."""
    called: object = _called_for(deliveries, callback, result, 0, None)
    removed: cython.int = 0
    while result.forget(called):
        removed += 1
    if isinstance(called, WaiterCallback):
        called.discard()
    return removed


@cython.cfunc
def _called_for(deliveries: object, callback: object, result: object, index: cython.int, see: object) -> object:
    """What *result* calls for *callback*, asyncio's own or a user's."""
    observer = result.observer
    wake = observer.waker(callback)
    if wake is None:
        return user_callback(deliveries, callback, result, index, see)
    return observer.waiters.setdefault((callback, deliveries), WaiterCallback(deliveries, callback, observer, wake))
