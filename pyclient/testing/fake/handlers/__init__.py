"""Which handler answers which API: one row each. Handlers, refusals and state of related APIs share one file."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyclient.codec.apis import Api
from pyclient.testing.fake.model.request import Row
from pyclient.testing.fake.handlers import (
    cluster,
    commits,
    configs,
    consumer_groups,
    coordinators,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    producer_ids,
    producers,
    records,
    sasl,
    topics,
    transactional_commits,
    transactions,
    versions,
)

HANDLERS: Final[Mapping[Api, Row]] = {
    Api.API_VERSIONS: Row(versions.api_versions, versions.refuse_api_versions),
    Api.PRODUCE: Row(produce.produce, produce.refuse_produce),
    Api.FETCH: Row(fetch.fetch, fetch.refuse_fetch),
    Api.LIST_OFFSETS: Row(offsets.list_offsets, offsets.refuse_list_offsets),
    Api.DELETE_RECORDS: Row(records.delete_records, records.refuse_delete_records),
    Api.OFFSET_FOR_LEADER_EPOCH: Row(offsets.offset_for_leader_epoch, offsets.refuse_offset_for_leader_epoch),
    Api.METADATA: Row(metadata.metadata, metadata.refuse_metadata),
    Api.FIND_COORDINATOR: Row(coordinators.find_coordinator, coordinators.refuse_find_coordinator),
    Api.JOIN_GROUP: Row(groups.join_group, groups.refuse_join_group),
    Api.SYNC_GROUP: Row(groups.sync_group, groups.refuse_sync_group),
    Api.HEARTBEAT: Row(groups.heartbeat, groups.refuse_heartbeat),
    Api.LEAVE_GROUP: Row(groups.leave_group, groups.refuse_leave_group),
    Api.DESCRIBE_GROUPS: Row(groups.describe_groups, groups.refuse_describe_groups),
    Api.LIST_GROUPS: Row(groups.list_groups, groups.refuse_list_groups),
    Api.DELETE_GROUPS: Row(groups.delete_groups, groups.refuse_delete_groups),
    Api.CONSUMER_GROUP_HEARTBEAT: Row(consumer_groups.consumer_group_heartbeat, consumer_groups.refuse_consumer_group_heartbeat),
    Api.CONSUMER_GROUP_DESCRIBE: Row(consumer_groups.consumer_group_describe, consumer_groups.refuse_consumer_group_describe),
    Api.OFFSET_COMMIT: Row(commits.offset_commit, commits.refuse_offset_commit),
    Api.OFFSET_FETCH: Row(commits.offset_fetch, commits.refuse_offset_fetch),
    Api.OFFSET_DELETE: Row(commits.offset_delete, commits.refuse_offset_delete),
    Api.CREATE_TOPICS: Row(topics.create_topics, topics.refuse_create_topics),
    Api.DELETE_TOPICS: Row(topics.delete_topics, topics.refuse_delete_topics),
    Api.CREATE_PARTITIONS: Row(topics.create_partitions, topics.refuse_create_partitions),
    Api.DESCRIBE_CONFIGS: Row(configs.describe_configs, configs.refuse_describe_configs),
    Api.INCREMENTAL_ALTER_CONFIGS: Row(configs.incremental_alter_configs, configs.refuse_incremental_alter_configs),
    Api.DESCRIBE_CLUSTER: Row(cluster.describe_cluster, cluster.refuse_describe_cluster),
    Api.DESCRIBE_TOPIC_PARTITIONS: Row(cluster.describe_topic_partitions, cluster.refuse_describe_topic_partitions),
    Api.SASL_HANDSHAKE: Row(sasl.sasl_handshake, sasl.refuse_sasl_handshake),
    Api.SASL_AUTHENTICATE: Row(sasl.sasl_authenticate, sasl.refuse_sasl_authenticate),
    Api.INIT_PRODUCER_ID: Row(producer_ids.init_producer_id, producer_ids.refuse_init_producer_id),
    Api.ADD_PARTITIONS_TO_TXN: Row(transactions.add_partitions_to_txn, transactions.refuse_add_partitions_to_txn),
    Api.ADD_OFFSETS_TO_TXN: Row(transactions.add_offsets_to_txn, transactions.refuse_add_offsets_to_txn),
    Api.END_TXN: Row(transactions.end_txn, transactions.refuse_end_txn),
    Api.TXN_OFFSET_COMMIT: Row(transactional_commits.txn_offset_commit, transactional_commits.refuse_txn_offset_commit),
    Api.DESCRIBE_TRANSACTIONS: Row(transactions.describe_transactions, transactions.refuse_describe_transactions),
    Api.LIST_TRANSACTIONS: Row(transactions.list_transactions, transactions.refuse_list_transactions),
    Api.WRITE_TXN_MARKERS: Row(producers.write_txn_markers, producers.refuse_write_txn_markers),
    Api.DESCRIBE_PRODUCERS: Row(producers.describe_producers, producers.refuse_describe_producers),
}
