# cython: language_level=3, freethreading_compatible=True, embedsignature=True
"""How ``for record in consumer`` goes on: record after record without a Python frame between two of them.

A generator would cost as much as the making of a record does. Knows walks and whom to ask for the next one; knows no
offsets and no consumers.
"""
import cython
from cython.cimports.pyclient.codec.batches import BatchRecordIterator

from pyclient.errors import ConcurrentUseError


@cython.final
@cython.cclass
class RecordCursor:
    """Goes through *runs* of records one by one, and knows which came last. `stop` ends it from outside: the rest is not shown."""

    _runs: object
    _run: object  # under way, when it is none of a batch
    _batch: BatchRecordIterator | None  # under way: the usual kind, of which a record costs no call through the interpreter
    _current: object
    _stopped: cython.bint

    def __init__(self, runs: object) -> None:
        self._runs = iter(runs)
        self._run = iter(())

    @property
    def current(self) -> object:
        """The record that came last; None before the first."""
        return self._current

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """Show no further record."""
        self._stopped = True

    def __iter__(self) -> object:
        return self

    def __next__(self) -> object:
        record: object = self.step()
        if record is None:
            raise StopIteration
        return record

    @cython.cfunc
    def step(self) -> object:
        """The next record; None at the end."""
        if not self._stopped:
            if self._batch is not None and self._batch.position < self._batch.end:
                self._current = self._batch.step()
                return self._current
            return self.next_run()
        return None

    @cython.cfunc
    def next_run(self) -> object:
        """As `step`, where a run is at its end, or none of a batch."""
        while True:
            for record in self._run:
                self._current = record
                return record
            for run in self._runs:
                self._run = run
                break
            else:
                return None
            self._batch = self._run if isinstance(self._run, BatchRecordIterator) else None


@cython.final
@cython.cclass
class Iteration:
    """Walk after walk, without end.

    ``begin()`` gives a walk; ``exhausted()`` is called when one has been gone through, ``abandon(walk)`` when the iteration ends
    within one: by `close`, by an error, or because nobody holds it any more. After an error it is at its end.

    Raises:
        ConcurrentUseError: a walk is being asked for, by another thread or around this very call. That one goes on.
    """

    _begin: object
    _exhausted: object
    _abandon: object
    _walk: RecordCursor | None
    _ended: cython.bint
    _asking: cython.bint

    def __init__(self, begin: object, exhausted: object, abandon: object) -> None:
        self._begin = begin
        self._exhausted = exhausted
        self._abandon = abandon
        self._walk = None

    def __iter__(self) -> object:
        return self

    def __next__(self) -> object:
        self._refuse_a_second()
        try:
            while not self._ended:
                record = None if self._walk is None else self._walk.step()
                if record is not None:
                    return record
                self._go_on()
        except BaseException:
            self.close()
            raise
        raise StopIteration

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _go_on(self) -> cython.int:
        walk: RecordCursor = self._walk
        self._walk = None
        self._asking = True
        try:
            if walk is not None and not walk._stopped:
                self._exhausted()
            self._walk = self._begin()
        finally:
            self._asking = False
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _refuse_a_second(self) -> cython.int:
        if self._asking:
            raise ConcurrentUseError("this iteration is being asked for its next record already. Give each thread its own consumer.")
        return 0

    def close(self) -> None:
        """End here; what the walk under way has not shown stays unread."""
        self._refuse_a_second()
        walk: RecordCursor = self._walk
        self._walk = None
        self._ended = True
        if walk is not None:
            self._abandon(walk)

    def __del__(self) -> None:
        self.close()
