"""The table of other clients' methods, arguments and habits: the line to write here instead.

`foreign_calls` answers mistakes from it, and the page on migrating is generated from it. Lines are Python
as sync clients write it; a test binds each to this client's signatures.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

KAFKA_PYTHON: Final = "kafka-python"
CONFLUENT: Final = "confluent-kafka"
AIOKAFKA: Final = "aiokafka"
CLIENTS: Final = (KAFKA_PYTHON, CONFLUENT, AIOKAFKA)
JAVA: Final = "Java"
"""Its methods as they would be called in Python: ``describeMetadataQuorum`` is ``describe_metadata_quorum``."""

_K: Final = (KAFKA_PYTHON,)
_C: Final = (CONFLUENT,)
_A: Final = (AIOKAFKA,)
_KA: Final = (KAFKA_PYTHON, AIOKAFKA)
_KC: Final = (KAFKA_PYTHON, CONFLUENT)
_J: Final = (JAVA,)
_KJ: Final = (KAFKA_PYTHON, JAVA)
_CJ: Final = (CONFLUENT, JAVA)
_KCJ: Final = (KAFKA_PYTHON, CONFLUENT, JAVA)
_S: Final = "it is in seconds"


class Method(NamedTuple):
    """A method or attribute of another client; *here* is the line instead, empty when there is none."""

    owner: str
    name: str
    clients: tuple[str, ...]
    here: str
    note: str = ""

    @property
    def there(self) -> str:
        """How it looks in a program."""
        return f"{self.owner}.{self.name}"


class Argument(NamedTuple):
    """An argument of another client."""

    owner: str
    method: str
    name: str
    clients: tuple[str, ...]
    here: str
    note: str = ""

    @property
    def call(self) -> str:
        """The call that it is an argument of."""
        return self.owner if self.method == "__new__" else f"{self.owner}.{self.method}"

    @property
    def there(self) -> str:
        """How it looks in a program."""
        return f"{self.call}({self.name}=…)"


class Habit(NamedTuple):
    """What no name gives away."""

    name: str
    there: str
    clients: tuple[str, ...]
    here: str
    note: str = ""


_FLUSH: Final = "producer.flush()"
_TOPICS: Final = "Admin(bootstrap_servers=servers).list_topics()"
_BATCH: Final = "for record in consumer.poll(timeout=1.0, max_records=500): ..."
_ONE: Final = "record = next(iter(consumer))"
_GETS: Final = "delivery.result(timeout=10)"
_CALLED: Final = "delivery.add_done_callback(lambda delivery: {})"
"""The callback gets the Delivery, whatever became of the record."""
_EVENTS: Final = "consumer.subscribe(topics, rebalance_listener=listener)"
_LISTENER: Final = "an object with on_partitions_assigned and on_partitions_revoked"
_NO_POLL: Final = "callbacks run in a thread of the producer, nothing has to be polled"

_METHODS: Final = (
    # ── producers ──
    Method("producer", "produce", _C, "producer.send(topic, value, key=key, on_delivery=function)", "it returns a Delivery"),
    Method("producer", "produce_batch", _C, "producer.send_many(topic, values, keys=keys)"),
    Method("producer", "poll", _C, _FLUSH, _NO_POLL),
    Method("producer", "send_offsets_to_transaction", (*CLIENTS,), "producer.send_offsets(offsets, consumer.group_metadata())"),
    Method("producer", "purge", _C, "producer.close(timeout=0)", "it fails what is not sent yet"),
    Method("producer", "list_topics", _C, _TOPICS),
    Method("producer", "create_batch", _A, "producer.send_many(topic, values)"),
    Method("producer", "send_batch", _A, "producer.send_many(topic, values, partition=0)"),
    Method("producer", "bootstrap_connected", _K, "producer.is_connected"),
    Method("producer", "set_sasl_credentials", _C, "Producer(sasl_plain_password=function)", "the function returns the password of each login; or open another producer"),
    # ── what send returns ──
    Method("delivery", "get", _K, _GETS),
    Method("delivery", "value", _K, _GETS),
    Method("delivery", "add_callback", _K, _CALLED.format("delivery.exception() or function(delivery.result())")),
    Method("delivery", "add_errback", _K, _CALLED.format("delivery.exception() and function(delivery.exception())")),
    Method("delivery", "add_both", _K, "delivery.add_done_callback(function)", "it gets the Delivery, with exception() and result()"),
    Method("delivery", "is_done", _K, "delivery.done()"),
    Method("delivery", "succeeded", _K, "delivery.exception() is None"),
    Method("delivery", "failed", _K, "delivery.exception() is not None"),
    Method("delivery", "retriable", _K, "delivery.exception()", "an error's class has `retriable`"),
    # ── consumers ──
    Method("consumer", "getone", _A, _ONE, "or iterate over it"),
    Method("consumer", "getmany", _A, _BATCH),
    Method("consumer", "consume", _C, _BATCH),
    Method("consumer", "topics", _KA, "consumer.list_topics()"),
    Method("consumer", "partitions_for_topic", _KA, "consumer.partitions_for(topic)", "it is their number"),
    Method("consumer", "highwater", _KA, "consumer.high_watermark(partition)", "consumer.lag() asks the brokers"),
    Method("consumer", "last_stable_offset", _A, "consumer.end_offsets([partition])", "with isolation_level=read_committed"),
    Method("consumer", "get_watermark_offsets", _C, "consumer.beginning_offsets([partition]), consumer.end_offsets([partition])"),
    Method("consumer", "seek_to_committed", _A, "consumer.seek(partition, consumer.committed([partition])[partition])"),
    Method("consumer", "unassign", _C, "consumer.assign([])"),
    Method("consumer", "incremental_assign", _C, "consumer.assign([*consumer.assignment(), partition])"),
    Method("consumer", "incremental_unassign", _C, "consumer.assign(consumer.assignment() - {partition})"),
    Method("consumer", "consumer_group_metadata", _C, "consumer.group_metadata()"),
    Method("consumer", "memberid", _C, "consumer.group_metadata().member_id"),
    Method("consumer", "bootstrap_connected", _K, "consumer.is_connected"),
    # ── what poll returns ──
    Method("records", "error", _C, "for record in consumer.poll(timeout=1.0): ...", "poll returns many records, and raises errors"),
    Method("records", "value", _C, "for record in consumer.poll(timeout=1.0): print(record.value)", "poll returns many records"),
    Method("records", "key", _C, "for record in consumer.poll(timeout=1.0): print(record.key)", "poll returns many records"),
    Method("records", "topic", _C, "for record in consumer.poll(timeout=1.0): print(record.topic)", "poll returns many records"),
    Method("records", "items", _KA, "for partition, part in consumer.poll(timeout=1.0).by_partition(): ..."),
    Method("records", "values", _KA, "for partition, part in consumer.poll(timeout=1.0).by_partition(): ..."),
    # ── admin ──
    Method("admin", "list_partition_offsets", _K, "admin.list_offsets({partition: OffsetSpec.LATEST})"),
    Method("admin", "list_group_offsets", _K, 'admin.group_offsets("billing")'),
    Method("admin", "remove_group_members", _K, 'admin.remove_members("billing")'),
    Method("admin", "list_consumer_groups", _CJ, "admin.list_groups()"),
    Method("admin", "describe_consumer_groups", _CJ, 'admin.describe_groups(["billing"])'),
    Method("admin", "list_consumer_group_offsets", _CJ, 'admin.group_offsets("billing")'),
    Method("admin", "alter_consumer_group_offsets", _CJ, 'admin.alter_group_offsets("billing", {partition: 5})'),
    Method("admin", "delete_consumer_groups", _CJ, 'admin.delete_groups(["billing"])'),
    Method("admin", "incremental_alter_configs", _CJ, 'admin.alter_configs({ConfigResource.topic("orders"): {"retention.ms": 3_600_000}})'),
    Method("admin", "alter_user_scram_credentials", _KCJ, 'admin.alter_scram_users({"anna": ScramPassword("secret")})'),
    Method("admin", "describe_user_scram_credentials", _KCJ, 'admin.describe_scram_users(["anna"])'),
    Method("admin", "wait_for_topics", _K, "admin.describe_topics([name])"),
    Method("admin", "describe_topic_partitions", _K, "admin.describe_topics([name])"),
    Method("admin", "describe_metadata_quorum", _KJ, "admin.describe_quorum()"),
    Method("admin", "reset_configs", _K, 'admin.alter_configs({ConfigResource.topic("orders"): {"retention.ms": ConfigChange.delete()}})'),
    Method("admin", "get_broker_version_data", _K, "admin.describe_features()"),
    Method("admin", "api_versions", _K, "admin.describe_features()", "the client chooses the versions of requests itself"),
    Method("admin", "poll", _C, "admin.list_topics()", "calls wait for their result, nothing has to be polled"),
    Method("admin", "set_sasl_credentials", _C, "Admin(sasl_plain_password=function)", "the function returns the password of each login; or open another admin client"),
    Method("admin", "describe_client_quotas", _J, 'admin.describe_quotas(QuotaEntity(user="anna"))'),
    Method("admin", "alter_client_quotas", _J, 'admin.alter_quotas({QuotaEntity(user="anna"): {"producer_byte_rate": 1_000_000}})'),
    Method("admin", "remove_members_from_consumer_group", _J, 'admin.remove_members("billing")'),
    Method("admin", "delete_consumer_group_offsets", _J, 'admin.delete_group_offsets("billing", [partition])'),
    Method("admin", "describe_classic_groups", _J, 'admin.describe_groups(["billing"])'),
    Method("admin", "describe_replica_log_dirs", _J, "admin.describe_log_dirs([1])"),
    Method("admin", "force_terminate_transaction", _J, 'admin.fence_producers(["billing"])'),
    Method("admin", "list_client_metrics_resources", _J, "admin.list_config_resources([ResourceType.CLIENT_METRICS])"),
)

_ARGUMENTS: Final = (
    Argument("producer", "send", "timestamp_ms", _KA, "producer.send(topic, value, timestamp=1_700_000_000_000)", "it is in ms"),
    Argument("producer", "send", "callback", _C, "producer.send(topic, value, on_delivery=function)", "it is called with the Delivery"),
    Argument("producer", "send_and_wait", "timestamp_ms", _A, "producer.send_and_wait(topic, value, timestamp=1_700_000_000_000)", "it is in ms"),
    Argument("consumer", "poll", "timeout_ms", _K, "consumer.poll(timeout=1.0)", _S),
    Argument("consumer", "poll", "update_offsets", _K, "consumer.poll(timeout=1.0)", "seek() back to read records again"),
    Argument("consumer", "subscribe", "pattern", _KA, 'consumer.subscribe(re.compile("orders-.*"))', "it matches a topic's whole name"),
    Argument("consumer", "subscribe", "listener", _KA, _EVENTS, _LISTENER),
    Argument("consumer", "subscribe", "on_assign", _C, _EVENTS, _LISTENER),
    Argument("consumer", "subscribe", "on_revoke", _C, _EVENTS, _LISTENER),
    Argument("consumer", "subscribe", "on_lost", _C, _EVENTS, f"{_LISTENER}, and on_partitions_lost"),
    Argument("consumer", "commit", "timeout_ms", _K, "consumer.commit(timeout=10)", _S),
    Argument("consumer", "commit", "asynchronous", _C, "consumer.commit_async()", "commit() waits"),
    Argument("consumer", "commit", "message", _C, "consumer.commit(record)", "it commits the position after the record"),
    Argument("consumer", "committed", "partition", _KA, "consumer.committed([partition])[partition]"),
    Argument("consumer", "committed", "metadata", _K, "consumer.committed([partition])[partition]", "it has offset and metadata"),
    Argument("consumer", "committed", "timeout_ms", _K, "consumer.committed([partition], timeout=10)", _S),
    Argument("consumer", "position", "timeout_ms", _K, "consumer.position(partition, timeout=10)", _S),
    Argument("consumer", "beginning_offsets", "timeout_ms", _K, "consumer.beginning_offsets([partition], timeout=10)", _S),
    Argument("consumer", "end_offsets", "timeout_ms", _K, "consumer.end_offsets([partition], timeout=10)", _S),
    Argument("consumer", "offsets_for_times", "timestamps", _KA, "consumer.offsets_for_times({partition: 1_700_000_000_000})"),
    Argument("consumer", "offsets_for_times", "timeout_ms", _K, "consumer.offsets_for_times({partition: 0}, timeout=10)", _S),
    Argument("consumer", "list_topics", "topic", _C, "consumer.partitions_for(topic)", "list_topics() returns names"),
    Argument("consumer", "close", "timeout_ms", _K, "consumer.close(timeout=10)", _S),
    Argument("consumer", "close", "autocommit", _K, "consumer.close()", "enable_auto_commit decides"),
    Argument("admin", "create_topics", "new_topics", _KC, 'admin.create_topics([NewTopic("orders", partitions=6)])'),
    Argument("admin", "create_topics", "timeout_ms", _K, 'admin.create_topics(["orders"], timeout=10)', _S),
    Argument("admin", "create_topics", "raise_errors", _K, 'admin.create_topics(["orders"])', "it raises errors"),
    Argument("admin", "delete_topics", "topics", _KC, 'admin.delete_topics(["orders"])'),
    Argument("admin", "delete_topics", "timeout_ms", _K, 'admin.delete_topics(["orders"], timeout=10)', _S),
    Argument("admin", "create_partitions", "topic_partitions", _K, 'admin.create_partitions({"orders": 12})'),
    Argument("admin", "create_partitions", "timeout_ms", _K, 'admin.create_partitions({"orders": 12}, timeout=10)', _S),
    Argument("admin", "create_partitions", "raise_errors", _K, 'admin.create_partitions({"orders": 12})', "it raises errors"),
    Argument("admin", "create_partitions", "new_partitions", _C, 'admin.create_partitions({"orders": 12})'),
    Argument("admin", "describe_topics", "topics", _KC, 'admin.describe_topics(["orders"])'),
    Argument("NewTopic", "__new__", "num_partitions", _KC, 'NewTopic("orders", partitions=6)'),
    Argument("NewTopic", "__new__", "topic_configs", _K, 'NewTopic("orders", configs={"retention.ms": 3_600_000})'),
    Argument("NewTopic", "__new__", "config", _C, 'NewTopic("orders", configs={"retention.ms": 3_600_000})'),
    Argument("NewTopic", "__new__", "topic", _C, 'NewTopic("orders")'),
    Argument("NewTopic", "__new__", "replica_assignment", _C, 'NewTopic("orders", replica_assignments={0: [1, 2]})'),
)

_HABITS: Final = (
    Habit("topic_first", 'Consumer("orders", …)', _KA, 'Consumer(topics=["orders"], bootstrap_servers=servers)'),
    Habit("err_msg", "a delivery callback (err, msg)", _C, "def on_delivery(delivery): error = delivery.exception()",
          "the callback gets the Delivery; result() has the offset"),
    Habit("second_of_subscribe", "subscribe(topics, listener)", CLIENTS, _EVENTS, _LISTENER),
    Habit("called_fields", "record.value()", _C, "for record in consumer.poll(timeout=1.0): print(record.value)",
          "fields of a record are attributes; timestamp is in ms, with timestamp_type beside it"),
    Habit("text", 'producer.produce("orders", "text")', _C, 'Producer(bootstrap_servers=servers, key_serializer="string", value_serializer="string")',
          'or encode it; without a serializer keys and values are bytes. Consumers have key_deserializer="string", value_deserializer="string"'),
    Habit("text_in_headers", 'headers={"trace": "7"}', _C, 'producer.send(topic, value, headers={"trace": b"7"})',
          "values of headers are bytes or None; what a record has is a list of pairs, empty without headers"),
    Habit("commit_option", 'Consumer({"on_commit": function})', _C, "consumer.commit_async(callback=function)",
          "it is called with the offsets and the error; on_commit of an interceptor hears of each commit, automatic ones too"),
    Habit("end_of_partition", '"enable.partition.eof": True', _C, "if not any(consumer.lag().values()): ...",
          "there is no event; lag() asks the brokers how much is left of each assigned partition"),
    Habit("caret", 'subscribe(["^orders-.*"])', _C, 'consumer.subscribe(re.compile("orders-.*"))', "it matches a topic's whole name"),
)

METHODS: Final[Mapping[tuple[str, str], Method]] = {(row.owner, row.name): row for row in _METHODS}
ARGUMENTS: Final[Mapping[tuple[str, str, str], Argument]] = {(row.owner, row.method, row.name): row for row in _ARGUMENTS}
HABITS: Final[Mapping[str, Habit]] = {row.name: row for row in _HABITS}
