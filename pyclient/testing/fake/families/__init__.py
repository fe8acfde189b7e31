"""Who answers which API: one row each. A family's file holds its handlers, refusals and own state, and nothing else does."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyclient.codec.apis import Api
from pyclient.testing.fake.asking import Row
from pyclient.testing.fake.families import fetch, metadata, offsets, produce, records, versions

FAMILIES: Final[Mapping[Api, Row]] = {
    Api.API_VERSIONS: Row(versions.api_versions, versions.refuse_api_versions),
    Api.PRODUCE: Row(produce.produce, produce.refuse_produce),
    Api.FETCH: Row(fetch.fetch, fetch.refuse_fetch),
    Api.LIST_OFFSETS: Row(offsets.list_offsets, offsets.refuse_list_offsets),
    Api.DELETE_RECORDS: Row(records.delete_records, records.refuse_delete_records),
    Api.OFFSET_FOR_LEADER_EPOCH: Row(offsets.offset_for_leader_epoch, offsets.refuse_offset_for_leader_epoch),
    Api.METADATA: Row(metadata.metadata, metadata.refuse_metadata),
}
