"""What an error means for a transactional producer. It depends on the request that it answers, not on its class.

INVALID_PRODUCER_EPOCH, for one, only ends the transaction when it answers Produce: the coordinator may have aborted a
transaction that took too long. Any other request gets it after another producer has taken over.
"""
from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from pyclient.codec.apis import Api
from pyclient.errors import (
    ClusterAuthorizationError, CoordinatorNotAvailableError, FencedInstanceIdError, FencedMemberEpochError, GroupAuthorizationError, GroupIdNotFoundError,
    IllegalGenerationError, InvalidPidMappingError, InvalidProducerEpochError, InvalidTxnStateError, KafkaError, KafkaTimeoutError, NotCoordinatorError,
    ProducerFencedError, RequestTimedOutError, StaleMemberEpochError, TopicAuthorizationError, TransactionAbortableError,
    TransactionalIdAuthorizationError, UnknownMemberIdError, UnknownProducerIdError,
)


class Meaning(enum.Enum):
    """What to do after an error."""

    RETRY = "send the request again"
    FIND = "look the coordinator up, then send it again"
    REFUSED = "the call fails; it may be repeated"
    ABORT = "the transaction can only be aborted"
    FATAL = "this producer cannot continue"


_A, _F = Meaning.ABORT, Meaning.FATAL
_MEMBER: Final = (
    UnknownMemberIdError, IllegalGenerationError, StaleMemberEpochError, FencedMemberEpochError, GroupIdNotFoundError, FencedInstanceIdError)
_FENCED: Final = dict.fromkeys((ProducerFencedError, InvalidProducerEpochError, TransactionalIdAuthorizationError, InvalidPidMappingError,
                                InvalidTxnStateError), _F)
_ABORTABLE: Final = dict.fromkeys((TransactionAbortableError, KafkaTimeoutError, UnknownProducerIdError, TopicAuthorizationError, GroupAuthorizationError), _A)

MEANINGS: Final[Mapping[Api, tuple[Mapping[type[KafkaError], Meaning], Meaning]]] = {
    Api.INIT_PRODUCER_ID: ({
        TransactionalIdAuthorizationError: Meaning.REFUSED, ClusterAuthorizationError: Meaning.REFUSED, TransactionAbortableError: Meaning.REFUSED}, _F),
    Api.ADD_PARTITIONS_TO_TXN: (_FENCED, _A),
    Api.ADD_OFFSETS_TO_TXN: (_ABORTABLE, _F),
    Api.TXN_OFFSET_COMMIT: ({**dict.fromkeys(_MEMBER, _A), **_ABORTABLE, UnknownProducerIdError: _F}, _F),
    Api.END_TXN: ({TransactionAbortableError: _A, UnknownProducerIdError: _A}, _F),
    Api.PRODUCE: ({ProducerFencedError: _F, InvalidPidMappingError: _F, TransactionalIdAuthorizationError: _F}, _A),
}
"""By the request: errors that mean something else than the last entry, which is for all others."""
_MOVED: Final = (NotCoordinatorError, CoordinatorNotAvailableError)


def meaning(api: Api, error: KafkaError, *, aborting: bool = False) -> Meaning:
    """What *error* means as the final outcome of a request. *aborting*: of an EndTxn that aborts.

    An abort that could only be aborted would be repeated without end.
    """
    rows, others = MEANINGS[api]
    found = next((rows[kind] for kind in type(error).__mro__ if kind in rows), others)
    return Meaning.FATAL if aborting and api is Api.END_TXN else found


def answer_meaning(api: Api, error: KafkaError) -> Meaning | None:
    """What to do at once after this answer of a coordinator; None if it is final."""
    if isinstance(error, _MOVED) or (api is Api.TXN_OFFSET_COMMIT and isinstance(error, RequestTimedOutError)):
        return Meaning.FIND
    return Meaning.RETRY if error.retriable else None
