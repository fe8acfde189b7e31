"""The error codes of brokers: one class each, in the order of the codes, and `error_for`, which finds it.

A class is one row of a table: code, Kafka's name, what happened and the way out. Codes 40 and 120 are groups, in
`base`.
"""
from __future__ import annotations

from pyclient.errors.base import (
    BY_CODE, ApplicationRecoverableError, AuthenticationError, AuthorizationError, InvalidConfigurationError, KafkaError,
    RefreshRetriableError, RetriableError, _summary,
)
from pyclient.records import Node, TopicPartition
from pyclient.redaction import in_one_line


class UnknownServerError(KafkaError):
    """An unexpected failure of the broker: see its log. Also used for error codes that are newer than this client."""
    code, name = -1, "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRangeError(KafkaError):
    """The offset is outside the log: seek to one between the beginning and the end offset, or set
    ``auto_offset_reset``."""
    code: int | None = 1
    name = "OFFSET_OUT_OF_RANGE"


class LogTruncationError(OffsetOutOfRangeError):
    """An unclean leader election truncated the log below the consumer's position: ``seek`` to ``divergent_offset`` to
    read the new records there. ``offset`` was the position; ``leader_epoch`` is the last one that both logs share."""
    code, name = None, ""

    def __init__(self, topic_partition: TopicPartition, *, offset: int, divergent_offset: int, leader_epoch: int) -> None:
        super().__init__(
            f"the log of {topic_partition} was truncated to offset {divergent_offset} (leader epoch {leader_epoch}): the records "
            f"read from there up to offset {offset} are no longer in it, and auto_offset_reset=none: seek() to {divergent_offset} to continue.",
            topic_partition=topic_partition)
        self.offset = offset
        self.divergent_offset = divergent_offset
        self.leader_epoch = leader_epoch


class CorruptRecordError(RetriableError):
    """A record or batch is corrupt or invalid (wrong CRC, bad length, no key on a compacted topic): send it again, with
    a key if the topic is compacted; when reading, seek to ``next_offset``, the first offset after the damaged batch.

    ``next_offset`` is None if the batch's header cannot be read either, and when a broker refuses a record. Like the
    rest of the batch the number may be damaged: it is then too far ahead, and records between are not read.
    """
    code, name = 2, "CORRUPT_MESSAGE"

    def __init__(self, message: str = "", *, topic_partition: TopicPartition | None = None, node: Node | int | None = None,
                 next_offset: int | None = None) -> None:
        super().__init__(message, topic_partition=topic_partition, node=node)
        self.next_offset = next_offset


class UnknownTopicOrPartitionError(RefreshRetriableError):
    """The broker has no such topic or partition (yet): check the name, create it, or wait for its creation to spread.
    """
    code, name = 3, "UNKNOWN_TOPIC_OR_PARTITION"


class InvalidFetchSizeError(KafkaError):
    """The broker rejects the fetch size: raise ``fetch_max_bytes`` and ``max_partition_fetch_bytes`` above 0.
    """
    code, name = 4, "INVALID_FETCH_SIZE"


class LeaderNotAvailableError(RefreshRetriableError):
    """The partition has no leader at present: an election is under way, or its replicas are down."""
    code, name = 5, "LEADER_NOT_AVAILABLE"


class NotLeaderOrFollowerError(RefreshRetriableError):
    """The partition moved to another broker: refresh metadata and send the request to its leader."""
    code, name = 6, "NOT_LEADER_OR_FOLLOWER"


class RequestTimedOutError(RetriableError, TimeoutError):
    """The broker did not finish in time, for instance because replicas lag: the outcome is unknown."""
    code: int | None = 7
    name = "REQUEST_TIMED_OUT"


class ResponseTimeoutError(RequestTimedOutError):
    """No answer arrived within ``request_timeout_ms``; the connection was closed and the outcome is unknown."""
    code, name = None, ""


class BrokerNotAvailableError(KafkaError):
    """The broker is not available: check that the cluster is up."""
    code, name = 8, "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailableError(RefreshRetriableError):
    """The replica does not exist yet or is moving: refresh metadata and try again."""
    code, name = 9, "REPLICA_NOT_AVAILABLE"


class RecordTooLargeError(KafkaError):
    """The record, alone or as a batch, exceeds a limit (``max_request_size`` here, ``max.message.bytes`` of the
    topic): send it smaller, compress, or raise both limits."""
    code, name = 10, "MESSAGE_TOO_LARGE"


class ControllerMovedError(KafkaError):
    """The controller moved to another broker during the request: send it to the new one."""
    code, name = 11, "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLargeError(KafkaError):
    """The metadata committed with an offset exceeds the broker's ``offset.metadata.max.bytes``: shorten it."""
    code, name = 12, "OFFSET_METADATA_TOO_LARGE"


class NetworkError(RefreshRetriableError):
    """The broker lost a connection it needed before the answer came: try again."""
    code, name = 13, "NETWORK_EXCEPTION"


class CoordinatorLoadInProgressError(RetriableError):
    """The coordinator is still loading its state after a move: try again shortly."""
    code, name = 14, "COORDINATOR_LOAD_IN_PROGRESS"


class CoordinatorNotAvailableError(RefreshRetriableError):
    """The coordinator is not up (its internal topic is being created or has no leader): look it up again shortly."""
    code, name = 15, "COORDINATOR_NOT_AVAILABLE"


class NotCoordinatorError(RefreshRetriableError):
    """The group or transaction has another coordinator now: look it up and send the request there."""
    code, name = 16, "NOT_COORDINATOR"


class InvalidTopicError(InvalidConfigurationError):
    """The topic name is not allowed, or the topic is internal: use at most 249 characters of letters, digits, dot,
    underscore and hyphen."""
    code, name = 17, "INVALID_TOPIC_EXCEPTION"


class RecordBatchTooLargeError(InvalidConfigurationError):
    """The batch is larger than a segment of the topic: lower ``batch_size`` or raise ``segment.bytes``."""
    code, name = 18, "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicasError(RetriableError):
    """Fewer replicas are in sync than ``min.insync.replicas``, so nothing was written: restart replicas, or lower that
    setting."""
    code, name = 19, "NOT_ENOUGH_REPLICAS"


class NotEnoughReplicasAfterAppendError(RetriableError):
    """The leader wrote the batch, but fewer replicas than ``min.insync.replicas`` have it. Unless the producer is
    idempotent, trying again may write it twice."""
    code, name = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class InvalidRequiredAcksError(InvalidConfigurationError):
    """acks must be 0, 1 or all (-1)."""
    code, name = 21, "INVALID_REQUIRED_ACKS"


class IllegalGenerationError(ApplicationRecoverableError):
    """The group has a newer generation: poll to join again; a commit of the old generation is lost."""
    code, name = 22, "ILLEGAL_GENERATION"
    fatal = False  # the member joins again at the next poll


class InconsistentGroupProtocolError(KafkaError):
    """The members of the group share no protocol type or assignor: give all of them at least one assignor in common."""
    code, name = 23, "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupIdError(KafkaError):
    """The group id is empty or not allowed: set ``group_id``."""
    code, name = 24, "INVALID_GROUP_ID"


class UnknownMemberIdError(ApplicationRecoverableError):
    """The group removed this member: a poll was late, or heartbeats did not reach a coordinator, which may have hung.
    Poll to join again; raise ``max_poll_interval_ms`` or ``session_timeout_ms``."""
    code, name = 25, "UNKNOWN_MEMBER_ID"
    fatal = False  # the member joins again at the next poll


class InvalidSessionTimeoutError(KafkaError):
    """``session_timeout_ms`` is outside the broker's ``group.min.session.timeout.ms`` to
    ``group.max.session.timeout.ms``."""
    code, name = 26, "INVALID_SESSION_TIMEOUT"


class RebalanceInProgressError(KafkaError):
    """The group is rebalancing: poll, then commit the partitions that are still assigned."""
    code, name = 27, "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSizeError(KafkaError):
    """The commit is too large for the internal topic: commit fewer partitions or shorter metadata at once."""
    code, name = 28, "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationError(AuthorizationError):
    """The principal may not do this with the topic: grant Read, Write, Describe or Create on it."""
    code, name = 29, "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationError(AuthorizationError):
    """The principal may not use the group: grant Read on it."""
    code, name = 30, "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationError(AuthorizationError):
    """The principal lacks a right on the cluster (for an idempotent producer IdempotentWrite or Write on a topic):
    grant it."""
    code, name = 31, "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestampError(KafkaError):
    """The record's timestamp is outside what the topic allows (``message.timestamp.before.max.ms`` and
    ``after.max.ms``): correct it or widen them."""
    code, name = 32, "INVALID_TIMESTAMP"


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker's listener has not enabled this ``sasl_mechanism``: choose one it names, or enable it there."""
    code, name = 33, "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslStateError(AuthenticationError):
    """The request is not allowed in this state of the login. The usual cause is a listener without SASL, or a proxy:
    check ``security_protocol`` and the port."""
    code, name = 34, "ILLEGAL_SASL_STATE"


class UnsupportedVersionError(InvalidConfigurationError):
    """The broker and this client share no version of the request: upgrade the broker, or avoid the feature."""
    code, name = 35, "UNSUPPORTED_VERSION"


class TopicExistsError(KafkaError):
    """A topic of this name exists already."""
    code, name = 36, "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(KafkaError):
    """The number of partitions is not allowed: it must be above 0, and can only grow."""
    code, name = 37, "INVALID_PARTITIONS"


class InvalidReplicationFactorError(InvalidConfigurationError):
    """The replication factor is below 1 or above the number of live brokers."""
    code, name = 38, "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignmentError(KafkaError):
    """The given replica assignment is not valid: each partition needs distinct, live brokers, all lists of one length.
    """
    code, name = 39, "INVALID_REPLICA_ASSIGNMENT"


class NotControllerError(RetriableError):
    """The broker is not the controller: send the request to the controller."""
    code, name = 41, "NOT_CONTROLLER"


class InvalidRequestError(KafkaError):
    """The broker rejects the request as malformed, usually for an argument out of range or a client defect: see the
    broker's log."""
    code, name = 42, "INVALID_REQUEST"


class UnsupportedForMessageFormatError(InvalidConfigurationError):
    """The topic's message format is too old for the request: upgrade the format."""
    code, name = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolationError(KafkaError):
    """A policy plugin of the cluster forbids the request: ask its administrators."""
    code, name = 44, "POLICY_VIOLATION"


class OutOfOrderSequenceError(KafkaError):
    """The broker lacks records before this batch: records may be lost. In a transaction, abort; otherwise the producer
    starts a new epoch."""
    code, name = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceError(KafkaError):
    """The broker already has this batch: it counts as written, but its offset is unknown."""
    code, name = 46, "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpochError(ApplicationRecoverableError):
    """This producer was fenced by a newer one with its ``transactional_id`` or by ``fence_producers``, or its
    transaction timed out: abort it. If ``abort_transaction`` raises ProducerFencedError, it was fenced: close it."""
    code, name = 47, "INVALID_PRODUCER_EPOCH"


class InvalidTxnStateError(ApplicationRecoverableError):
    """The call does not fit the state of the transaction on the broker: close this producer and open a new one."""
    code, name = 48, "INVALID_TXN_STATE"


class InvalidPidMappingError(ApplicationRecoverableError):
    """The broker no longer ties this producer id to the ``transactional_id`` (it expired): close this producer and
    open a new one."""
    code, name = 49, "INVALID_PRODUCER_ID_MAPPING"


class InvalidTxnTimeoutError(KafkaError):
    """``transaction_timeout_ms`` exceeds the broker's ``transaction.max.timeout.ms``: lower it."""
    code, name = 50, "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactionsError(RetriableError):
    """The previous transaction of this ``transactional_id`` is still being finished: try again shortly."""
    code, name = 51, "CONCURRENT_TRANSACTIONS"


class TransactionCoordinatorFencedError(KafkaError):
    """A former transaction coordinator tried to write a marker; the brokers resolve this."""
    code, name = 52, "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationError(AuthorizationError):
    """The principal may not use the ``transactional_id``: grant Write on it, then open a new producer."""
    code, name = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    fatal = True


class SecurityDisabledError(KafkaError):
    """The cluster has no authorizer: set one before managing ACLs."""
    code, name = 54, "SECURITY_DISABLED"


class OperationNotAttemptedError(KafkaError):
    """Another item of the same request failed first, so this one was not tried: send it again."""
    code, name = 55, "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(RefreshRetriableError):
    """A disk of the broker failed: the partition's leader moves, refresh metadata."""
    code, name = 56, "KAFKA_STORAGE_ERROR"


class LogDirNotFoundError(KafkaError):
    """The broker has no such log directory: use one of its ``log.dirs``."""
    code, name = 57, "LOG_DIR_NOT_FOUND"


class SaslAuthenticationError(AuthenticationError):
    """User, password, ticket or token were refused: check ``sasl_plain_username``, ``sasl_plain_password``, or the
    token."""
    code, name = 58, "SASL_AUTHENTICATION_FAILED"


class UnknownProducerIdError(KafkaError):
    """The broker no longer knows the producer, usually because retention removed all its records. In a transaction,
    abort; otherwise the producer starts a new epoch."""
    code, name = 59, "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgressError(KafkaError):
    """The partition is being reassigned: wait until that ends, or cancel it first."""
    code, name = 60, "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenDisabledError(KafkaError):
    """Delegation tokens are disabled: the brokers have no ``delegation.token.secret.key``."""
    code, name = 61, "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFoundError(KafkaError):
    """The cluster has no such delegation token: it was never created or has expired."""
    code, name = 62, "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatchError(KafkaError):
    """Only the owner and the renewers of a delegation token may do this."""
    code, name = 63, "DELEGATION_TOKEN_OWNER_MISMATCH"


class UnsupportedByAuthenticationError(KafkaError):
    """Delegation tokens need a connection with SASL or mutual TLS that was not itself authenticated by a token."""
    code, name = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationError(AuthorizationError):
    """The principal lacks this right on the delegation token: grant it."""
    code, name = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpiredError(KafkaError):
    """The delegation token has expired: create a new one."""
    code, name = 66, "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalTypeError(KafkaError):
    """Only principals of type User can have delegation tokens."""
    code, name = 67, "INVALID_PRINCIPAL_TYPE"


class GroupNotEmptyError(KafkaError):
    """The group still has members: stop them first."""
    code, name = 68, "NON_EMPTY_GROUP"


class GroupIdNotFoundError(KafkaError):
    """There is no such group: it never committed, or has expired."""
    code, name = 69, "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFoundError(RetriableError):
    """The broker evicted the fetch session: the client starts a new one."""
    code, name = 70, "FETCH_SESSION_ID_NOT_FOUND"


class InvalidFetchSessionEpochError(RetriableError):
    """The fetch session is out of step: the client starts a new one."""
    code, name = 71, "INVALID_FETCH_SESSION_EPOCH"


class ListenerNotFoundError(RefreshRetriableError):
    """The leader has no listener of the name that this client uses: configure the same listeners on all brokers."""
    code, name = 72, "LISTENER_NOT_FOUND"


class TopicDeletionDisabledError(KafkaError):
    """The brokers run with ``delete.topic.enable=false``."""
    code, name = 73, "TOPIC_DELETION_DISABLED"


class FencedLeaderEpochError(RefreshRetriableError):
    """The leader is newer than the client's metadata: refresh it."""
    code, name = 74, "FENCED_LEADER_EPOCH"


class UnknownLeaderEpochError(RetriableError):
    """The broker is behind the client's metadata: try again shortly."""
    code, name = 75, "UNKNOWN_LEADER_EPOCH"


class UnsupportedCompressionTypeError(KafkaError):
    """The topic's compression is newer than the request's version: zstd needs brokers and clients of 2.1 or later."""
    code, name = 76, "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpochError(KafkaError):
    """The broker was restarted meanwhile; brokers and controller resolve this."""
    code, name = 77, "STALE_BROKER_EPOCH"


class OffsetNotAvailableError(RetriableError):
    """A new leader does not know the end offset yet: try again shortly."""
    code, name = 78, "OFFSET_NOT_AVAILABLE"


class MemberIdRequiredError(KafkaError):
    """A new member must join again with the member id it was just given; the client does so automatically."""
    code, name = 79, "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailableError(RefreshRetriableError):
    """The preferred leader is not in sync or not up: restart it, then elect again."""
    code, name = 80, "PREFERRED_LEADER_NOT_AVAILABLE"


class GroupMaxSizeReachedError(KafkaError):
    """The group has ``group.max.size`` members already: stop one, or raise that limit on the brokers."""
    code, name = 81, "GROUP_MAX_SIZE_REACHED"


class FencedInstanceIdError(ApplicationRecoverableError):
    """Another member registered with the same ``group_instance_id``: give each member its own."""
    code, name = 82, "FENCED_INSTANCE_ID"


class EligibleLeadersNotAvailableError(RefreshRetriableError):
    """No replica is eligible as leader: restart an in-sync replica."""
    code, name = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE"


class ElectionNotNeededError(RefreshRetriableError):
    """The partition already has the right leader: nothing to do."""
    code, name = 84, "ELECTION_NOT_NEEDED"


class NoReassignmentInProgressError(KafkaError):
    """The partition is not being reassigned: nothing to cancel."""
    code, name = 85, "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopicError(KafkaError):
    """A member of the group subscribes to this topic: offsets can only be deleted when none does."""
    code, name = 86, "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecordError(InvalidConfigurationError):
    """The broker rejects the record (for instance a missing key on a compacted topic): correct the record."""
    code, name = 87, "INVALID_RECORD"


class UnstableOffsetCommitError(RetriableError):
    """A transaction with offsets of this partition is still open: try again after it ends."""
    code, name = 88, "UNSTABLE_OFFSET_COMMIT"


class ThrottlingQuotaExceededError(RetriableError):
    """The quota for topic and partition changes is exhausted: wait for throttle_time_ms, or raise the quota."""
    code, name = 89, "THROTTLING_QUOTA_EXCEEDED"


class ProducerFencedError(ApplicationRecoverableError):
    """A newer producer uses the same ``transactional_id``, or ``fence_producers`` fenced this one: close it; give each
    running producer its own id."""
    code, name = 90, "PRODUCER_FENCED"


class ResourceNotFoundError(KafkaError):
    """The request names something that does not exist (a user, a quota entity)."""
    code, name = 91, "RESOURCE_NOT_FOUND"


class DuplicateResourceError(KafkaError):
    """The request names the same thing twice."""
    code, name = 92, "DUPLICATE_RESOURCE"


class UnacceptableCredentialError(KafkaError):
    """The credential does not meet the cluster's rules, for instance too few SCRAM iterations."""
    code, name = 93, "UNACCEPTABLE_CREDENTIAL"


class InconsistentVoterSetError(KafkaError):
    """Sender or receiver is not a voter of the metadata quorum; check ``controller.quorum.*`` of the controllers."""
    code, name = 94, "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersionError(KafkaError):
    """The update gives another version than expected: describe, then update again."""
    code, name = 95, "INVALID_UPDATE_VERSION"


class FeatureUpdateFailedError(KafkaError):
    """The features could not be updated: see the controller's log."""
    code, name = 96, "FEATURE_UPDATE_FAILED"


class PrincipalDeserializationError(KafkaError):
    """The controller cannot read the principal a broker forwarded: check ``principal.builder.class`` on all brokers."""
    code, name = 97, "PRINCIPAL_DESERIALIZATION_FAILURE"


class SnapshotNotFoundError(KafkaError):
    """The controller has no such metadata snapshot."""
    code, name = 98, "SNAPSHOT_NOT_FOUND"


class PositionOutOfRangeError(KafkaError):
    """The position lies outside the metadata snapshot."""
    code, name = 99, "POSITION_OUT_OF_RANGE"


class UnknownTopicIdError(RefreshRetriableError):
    """The broker has no topic with this id: the topic was deleted, possibly created again, or is not known there yet;
    refresh metadata."""
    code, name = 100, "UNKNOWN_TOPIC_ID"


class DuplicateBrokerRegistrationError(KafkaError):
    """Another live broker has this node id: give each broker its own."""
    code, name = 101, "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegisteredError(KafkaError):
    """No broker is registered under this id."""
    code, name = 102, "BROKER_ID_NOT_REGISTERED"


class InconsistentTopicIdError(RefreshRetriableError):
    """The topic was deleted and created again: refresh metadata."""
    code, name = 103, "INCONSISTENT_TOPIC_ID"


class InconsistentClusterIdError(KafkaError):
    """The peer belongs to another cluster: check the addresses."""
    code, name = 104, "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFoundError(KafkaError):
    """The cluster knows no such transactional id: it never began a transaction, or has expired."""
    code, name = 105, "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(RetriableError):
    """The fetch session mixed topic names and ids: the client starts a new one."""
    code, name = 106, "FETCH_SESSION_TOPIC_ID_ERROR"


class IneligibleReplicaError(KafkaError):
    """A replica may not join the in-sync set now; the brokers resolve this."""
    code, name = 107, "INELIGIBLE_REPLICA"


class NewLeaderElectedError(KafkaError):
    """The update changed the partition's leader; the brokers resolve this."""
    code, name = 108, "NEW_LEADER_ELECTED"


class OffsetMovedToTieredStorageError(KafkaError):
    """The offset is only in tiered storage, which this request cannot read."""
    code, name = 109, "OFFSET_MOVED_TO_TIERED_STORAGE"


class FencedMemberEpochError(KafkaError):
    """The group coordinator replaced this member: it gives up its partitions and joins again automatically."""
    code, name = 110, "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceIdError(KafkaError):
    """Another member still uses this ``group_instance_id``: stop it, or wait for its session to end."""
    code, name = 111, "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignorError(KafkaError):
    """The group coordinator does not support this assignor: choose one of ``group.consumer.assignors``, or leave
    ``group_remote_assignor`` unset."""
    code, name = 112, "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpochError(KafkaError):
    """The group gave this member a newer epoch meanwhile: the client retries after its next heartbeat."""
    code, name = 113, "STALE_MEMBER_EPOCH"


class MismatchedEndpointTypeError(KafkaError):
    """A request for a controller was sent to a broker, or the reverse: check ``bootstrap_controllers`` and
    ``bootstrap_servers``.
    """
    code, name = 114, "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointTypeError(KafkaError):
    """Controllers do not answer this request: open another admin, with ``bootstrap_servers``."""
    code, name = 115, "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerIdError(KafkaError):
    """No controller has this id."""
    code, name = 116, "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionIdError(KafkaError):
    """The telemetry subscription changed: the client requests the new one."""
    code, name = 117, "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLargeError(KafkaError):
    """The pushed metrics exceed the broker's ``telemetry.max.bytes``: the client sends fewer."""
    code, name = 118, "TELEMETRY_TOO_LARGE"


class InvalidRegistrationError(KafkaError):
    """The controller rejects the broker's registration: see the controller's log."""
    code, name = 119, "INVALID_REGISTRATION"


class InvalidRecordStateError(KafkaError):
    """The share group's lock on this record expired or another consumer holds it: the record may be delivered again."""
    code, name = 121, "INVALID_RECORD_STATE"


class ShareSessionNotFoundError(RetriableError):
    """The broker has no such share session: the client starts a new one."""
    code, name = 122, "SHARE_SESSION_NOT_FOUND"


class InvalidShareSessionEpochError(RetriableError):
    """The share session is out of step: the client starts a new one."""
    code, name = 123, "INVALID_SHARE_SESSION_EPOCH"


class FencedStateEpochError(KafkaError):
    """The share group's state has a newer owner; the brokers resolve this."""
    code, name = 124, "FENCED_STATE_EPOCH"


class InvalidVoterKeyError(KafkaError):
    """The voter's key does not match the receiver's: check its node id and directory id."""
    code, name = 125, "INVALID_VOTER_KEY"


class DuplicateVoterError(KafkaError):
    """The node is already a voter of the metadata quorum."""
    code, name = 126, "DUPLICATE_VOTER"


class VoterNotFoundError(KafkaError):
    """The node is not a voter of the metadata quorum."""
    code, name = 127, "VOTER_NOT_FOUND"


class InvalidRegularExpressionError(KafkaError):
    """The broker cannot parse the subscription pattern: it must be in RE2 syntax."""
    code, name = 128, "INVALID_REGULAR_EXPRESSION"


class RebootstrapRequiredError(KafkaError):
    """The client's metadata is out of date: it starts again from ``bootstrap_servers``."""
    code, name = 129, "REBOOTSTRAP_REQUIRED"


class StreamsInvalidTopologyError(KafkaError):
    """The streams group rejects the topology: see the broker's message."""
    code, name = 130, "STREAMS_INVALID_TOPOLOGY"


class StreamsInvalidTopologyEpochError(KafkaError):
    """The topology epoch of the streams group is not valid."""
    code, name = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH"


class StreamsTopologyFencedError(KafkaError):
    """The streams group has a newer topology: update this application."""
    code, name = 132, "STREAMS_TOPOLOGY_FENCED"


class ShareSessionLimitReachedError(RetriableError):
    """The broker's limit of share sessions is reached: close some, or raise the limit."""
    code, name = 133, "SHARE_SESSION_LIMIT_REACHED"


def error_for(
    code: int,
    message: str | None = None,
    *,
    topic_partition: TopicPartition | None = None,
    node: Node | int | None = None,
) -> KafkaError:
    """The error for a broker's *code*; *message* is the text that the broker sent with it, if any.

    An unknown code gives an `UnknownServerError` with that code. Code 0 means success: ValueError.
    """
    if code == 0:
        raise ValueError("error code 0 means success: it has no error")
    message = in_one_line(message) if message else message
    cls = BY_CODE.get(code)
    if cls is not None:
        return cls(_with_advice(cls, message), topic_partition=topic_partition, node=node)
    said = f": {message}" if message else ""
    text = f"the broker answered with error code {code}, which this client does not know (a newer broker?){said}"
    error = UnknownServerError(text, topic_partition=topic_partition, node=node)
    error.code = code
    return error


def _with_advice(cls: type[KafkaError], message: str | None) -> str:
    """The broker's text (what happened), then ours (what to do) and Kafka's name of the code (to search for)."""
    said = f"{message.rstrip('. ')}. " if message else ""
    return f"{said}{_summary(cls)} [{cls.name}]"
