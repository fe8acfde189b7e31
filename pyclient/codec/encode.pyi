from collections.abc import Iterable
from typing import Final, TypeAlias

from pyclient.codec.compression import Compression
from pyclient.records import Header

_RecordFields: TypeAlias = tuple[int, bytes | None, bytes | None, Iterable[Header] | None]

HEADER_SIZE: Final = 61
CRC_END: Final = 21
LENGTH_END: Final = 12
MAGIC: Final = 2
COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

def encode_headers(headers: Iterable[Header] | None) -> bytes: ...
def batch_header(
    *,
    records_crc: int,
    records_size: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    last_offset_delta: int | None = None,
) -> bytes: ...
def encode_batch(
    records: Iterable[_RecordFields],
    *,
    base_offset: int = 0,
    compression: str | Compression = "none",
    level: int | None = None,
    base_timestamp: int | None = None,
    timestamp_type: int = ...,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
) -> bytes: ...
def encode_values(
    values: Iterable[bytes | None],
    *,
    timestamp: int = 0,
    base_offset: int = 0,
    compression: str | Compression = "none",
    level: int | None = None,
) -> bytes: ...
