# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The transaction that nearly every one is, as the manager's state: begun, its records sent at once, committed.

`UsualTransactions` decides whether nothing else is to be done, and does what `Transactions` and the partition's
sequence do then, in protocol V2. It runs no interpreted code, so no signal handler runs between two steps. All that is
unusual is left to `Transactions`, which finds its state as it would have left it.
"""
import cython
from cython.cimports.pyclient.buffers.batch import Batch

from pyclient.core.sending.sequencing import SEQUENCES, SequenceState
from pyclient.core.transactions.calls import V2, ProducerId
from pyclient.core.transactions.states import TRANSACTION, TransactionEvent, TransactionState

_READY = TransactionState.READY
_OPEN = TRANSACTION.rows[_READY, TransactionEvent.BEGIN]
_COMMITTING = TRANSACTION.rows[_OPEN, TransactionEvent.COMMIT]
_ENDED = TRANSACTION.rows[_COMMITTING, TransactionEvent.ENDED]
_PROBING = SequenceState.PROBING
_FLOWING = SequenceState.FLOWING
_DRAINING = SequenceState.DRAINING
AFTER_LAST_SEQUENCE = cython.declare(cython.longlong, SEQUENCES)


@cython.final
@cython.cclass
class UsualTransactions:
    """Of one manager, in a state that no other call changes meanwhile. *gates*: why no record may be sent while it
    commits, and between transactions. The fields are declared in usual.pxd.
    """

    def __init__(self, manager, gates: tuple):
        self._manager = manager
        self._committing, self._ended = gates
        self.markers = manager.markers

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def begin(self, now: cython.double) -> cython.bint:
        """As `Transactions.begin`; False: it is not allowed, or not usual, and nothing has changed."""
        manager: object = self._manager
        if manager.state is not _READY or not self._is_calm(manager):
            return False
        progress: object = manager._progress
        manager.on_gate(None)
        progress.deadline = now + cython.cast(cython.double, manager._timeout)
        manager.state = _OPEN
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def may_commit(self) -> cython.bint:
        """Whether a commit has only to send the last batches, each of which `may_send`."""
        manager: object = self._manager
        if manager.state is not _OPEN or not self._is_calm(manager):
            return False
        progress: object = manager._progress
        return not (progress.wanted or progress.offsets or progress.groups or progress.doubtful) and progress.error is None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def may_send(self, sequence: object) -> cython.bint:
        """Whether nothing of the partition of *sequence* is in flight or missing."""
        return not (sequence.state is _DRAINING or sequence.in_flight)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_calm(self, manager: object) -> cython.bint:
        """Whether no call is under way, and nothing but the usual may come."""
        return manager._pending is None and manager._call is None and manager._fatal is None and manager.protocol is V2

    @cython.ccall
    def commit(self) -> cython.void:
        """As `Transactions.commit`, but that its caller waits here. No record is accepted from now on."""
        self._manager.on_gate(self._committing)
        self._manager.state = _COMMITTING

    @cython.ccall
    def leaves(self, batch: Batch, sequence: object, leader: object, now: cython.double) -> cython.void:
        """A partition's only batch leaves: *sequence* follows the transaction's epoch and leader, and numbers it."""
        producer: object = self._manager.producer
        if sequence.producer_id != producer[0] or sequence.epoch != producer[1]:
            sequence.producer_id, sequence.epoch = producer
            sequence.next_sequence, sequence.state = 0, _PROBING
        if sequence.leader is not leader:
            sequence.leader, sequence.state = leader, _PROBING
        batch.producer_id, batch.epoch, batch.sequence, batch.transactional = producer[0], producer[1], sequence.next_sequence, True
        sequence.next_sequence = (batch.sequence + cython.cast(cython.longlong, batch.count)) % AFTER_LAST_SEQUENCE
        self._manager._progress.started = True
        self.markers.left(now)

    @cython.ccall
    def stored(self, sequence: object, now: cython.double) -> cython.void:
        """The broker has stored the batch."""
        sequence.state = _FLOWING
        self.markers.stored(now)

    @cython.ccall
    def stored_before(self, sequence: object) -> cython.void:
        """The same, some time ago: the request did not come too early, or it has become unimportant."""
        sequence.state = _FLOWING
        self.markers.answered(0.0, False)

    @cython.ccall
    def producer(self) -> object:
        """Its id and epoch."""
        return self._manager.producer

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def started(self) -> cython.bint:
        """Whether the coordinator knows the transaction, so that it has to be ended."""
        return self._manager._progress.started

    @cython.ccall
    def ended(self, producer_id: cython.longlong, epoch: cython.int) -> cython.void:
        """It is committed, and the next one has this producer id and epoch. The coordinator's answer came before."""
        manager: object = self._manager
        progress: object = manager._progress
        progress.partitions.clear()
        progress.started = False
        manager.producer = tuple.__new__(ProducerId, (producer_id, epoch))
        manager.state = _ENDED
        manager.on_gate(self._ended)
