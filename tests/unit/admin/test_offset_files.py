"""Files of offsets: what is written is read again, and a line that is wrong is named."""
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import OffsetAndMetadata, TopicPartition
from pyclient.admin import GroupOffset, OffsetReset, read_offsets, write_offsets

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
PARTITIONS = st.builds(TopicPartition, st.text("abc._-09", min_size=1), st.integers(0, 2**31 - 1))


@given(offsets=st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1)))
def test_offsets_that_are_written_are_read_again(tmp_path_factory: pytest.TempPathFactory, offsets: dict[TopicPartition, int]) -> None:
    path = tmp_path_factory.getbasetemp() / "offsets.csv"
    write_offsets(path, offsets)
    assert read_offsets(path) == offsets


def test_what_a_group_has_committed_or_would_have_after_a_reset_is_written_as_kafkas_script_does(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    write_offsets(path, {TWO: GroupOffset(OffsetAndMetadata(7, "mine"), 9, 2), ONE: GroupOffset(None, 9, None)})
    assert path.read_text() == "t,1,7\n"
    write_offsets(path, {TWO: OffsetReset(None, 5), ONE: OffsetAndMetadata(3)})
    assert path.read_text() == "t,0,3\nt,1,5\n"


@pytest.mark.parametrize("line", ["t,0", "t,0,1,2", "t,x,1", "t,0,-1", ",0,1", f"t,0,{2**63}", f"t,{2**31},0", "t,0,\u0663", "t,0, 1"])
def test_a_line_that_is_no_offset_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(f"t,1,1\n\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="offsets.csv, line 3: expected topic,partition,offset"):
        read_offsets(path)


def test_a_partition_that_occurs_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text("t,0,1\nt,0,2\n")
    with pytest.raises(ValueError, match="line 2: t-0 occurs twice"):
        read_offsets(path)
