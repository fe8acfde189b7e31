# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The values behind metrics: a total, and sums by windows of time. Any thread may update and read them.

An update takes a few nanoseconds and no lock of the interpreter's: each request makes a dozen. Know no names and no
clock.
"""
import cython


@cython.final
@cython.cclass
class Total:
    """What was counted since the start. The field is declared in metric_values.pxd."""

    def __init__(self) -> None:
        self._value = 0.0

    @cython.ccall
    def add(self, amount: cython.double) -> cython.void:
        """Count *amount* more."""
        with cython.critical_section(self):
            self._value += amount

    @property
    def value(self) -> float:
        return self._value


@cython.final
@cython.cclass
class Windows:
    """Number, sum and maximum of samples in each of the last *kept* windows of *length* seconds.

    The fields are declared in metric_values.pxd.
    """

    def __init__(self, kept: cython.Py_ssize_t, length: cython.double) -> None:
        self._kept = kept
        self._length = length
        self._closed = []
        self._since = self._total = self._highest = 0.0
        self._count = 0

    @cython.ccall
    def add(self, total: cython.double, count: cython.longlong, highest: cython.double, now: cython.double) -> cython.void:
        """Add *count* samples with this sum and maximum, measured at *now*."""
        with cython.critical_section(self):
            if self._count == 0 or now - self._since >= self._length:
                self._next(now)
            self._count += count
            self._total += total
            if self._count == count or highest > self._highest:
                self._highest = highest

    @cython.cfunc
    def _next(self, now: cython.double) -> cython.void:
        if self._count:
            self._closed = [*self._closed, self._current()][1 - self._kept :] if self._kept > 1 else []
        self._since, self._count, self._total = now, 0, 0.0

    @cython.cfunc
    def _current(self) -> tuple:
        return self._since, self._count, self._total, self._highest

    def recent(self, after: cython.double) -> list:
        """(number, sum, maximum) of each window that began later than *after*, the oldest first."""
        with cython.critical_section(self):
            windows: list = [*self._closed, self._current()] if self._count else []
        return [(count, total, highest) for since, count, total, highest in windows if since > after]
