# cython: language_level=3, freethreading_compatible=True, embedsignature=True
"""The iterator of ``for record in consumer``: no Python frame runs between two records.

A generator would cost as much as making a record does. Independent of offsets.
"""
import cython
from cython.cimports.pyclient.codec.batches import BatchRecordIterator

from pyclient.errors import ConcurrentUseError


@cython.final
@cython.cclass
class RecordCursor:
    """Returns the records of *runs* one by one and keeps the last one as `current`. `stop` ends it early."""

    _runs: object
    _run: object  # the current run, when it does not belong to a batch
    _batch: BatchRecordIterator | None  # the current run of a batch, the usual kind: a record costs no call through the interpreter
    _current: object
    _stopped: cython.bint

    def __init__(self, runs: object) -> None:
        self._runs = iter(runs)
        self._run = iter(())

    @property
    def current(self) -> object:
        """The record that was returned last; None before the first."""
        return self._current

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """Return no further record."""
        self._stopped = True

    def __iter__(self) -> object:
        return self

    def __next__(self) -> object:
        record: object
        with cython.critical_section(self):
            record = self.step()
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
        """As `step`, when a run is at its end or does not belong to a batch."""
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
class RecordIterator:
    """Returns records of one cursor after another, without end.

    ``begin()`` returns a cursor. ``exhausted()`` is called after its last record, ``abandon(cursor)`` if the iteration
    ends before that: by `close`, by an error, or because it is garbage-collected. After an error it is at its end.

    Raises:
        ConcurrentUseError: ``begin()`` is running, in another thread or further up in this one. That call goes on.
    """

    _begin: object
    _exhausted: object
    _abandon: object
    _cursor: RecordCursor | None
    _ended: cython.bint
    _refilling: cython.bint

    def __init__(self, begin: object, exhausted: object, abandon: object) -> None:
        self._begin = begin
        self._exhausted = exhausted
        self._abandon = abandon
        self._cursor = None

    def __iter__(self) -> object:
        return self

    def __next__(self) -> object:
        with cython.critical_section(self):  # left while `begin` waits, as a GIL is
            return self._next()

    @cython.cfunc
    def _next(self) -> object:
        self._check_reentry()
        try:
            while not self._ended:
                record = None if self._cursor is None else self._cursor.step()
                if record is not None:
                    return record
                self._refill()
        except BaseException:
            self._close()
            raise
        raise StopIteration

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _refill(self) -> cython.int:
        cursor: RecordCursor = self._cursor
        self._cursor = None
        self._refilling = True
        try:
            if cursor is not None and not cursor._stopped:
                self._exhausted()
            self._cursor = self._begin()
        finally:
            self._refilling = False
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _check_reentry(self) -> cython.int:
        if self._refilling:
            raise ConcurrentUseError("another call of this iteration is waiting for its next record. Give each thread its own consumer.")
        return 0

    def close(self) -> None:
        """End here; records of the cursor that were not returned stay unread."""
        with cython.critical_section(self):
            self._close()

    @cython.cfunc
    def _close(self) -> object:
        self._check_reentry()
        cursor: RecordCursor = self._cursor
        self._cursor = None
        self._ended = True
        if cursor is not None:
            self._abandon(cursor)

    def __del__(self) -> None:
        self.close()
