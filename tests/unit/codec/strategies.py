"""Records for property tests: every field over its whole range, the edges of each often."""
from __future__ import annotations

from typing import TypeAlias

from hypothesis import strategies as st

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-(2**63), 2**63 - 1, -1, 0, 1]),
    st.builds(lambda bits, sign, near: sign * 2**bits + near, st.integers(0, 62), st.sampled_from([-1, 1]), st.integers(-1, 1)),
)
CONTENT = st.one_of(st.none(), st.just(b""), st.binary(max_size=40), st.binary(min_size=60, max_size=140))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
HEADERS = st.lists(st.tuples(NAMES, CONTENT), max_size=4)

RecordFields: TypeAlias = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

RECORDS: st.SearchStrategy[list[RecordFields]] = st.lists(st.tuples(INT64, CONTENT, CONTENT, HEADERS), max_size=12)
CODECS = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])
