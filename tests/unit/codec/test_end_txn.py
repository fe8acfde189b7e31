"""The frames of a commit have the bytes that kio writes; its usual answer is read, and any other one is refused."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.apis import Api
from pyclient.codec.end_txn import CommitFrames
from pyclient.codec.messages import decode_response, encode_request

VERSION = 5
INT16 = st.integers(0, 2**15 - 1)
INT31 = st.integers(0, 2**31 - 1)
INT63 = st.integers(0, 2**63 - 1)


def answer(correlation_id: int, producer_id: int, epoch: int, *, throttle_ms: int = 0, error: int = 0) -> bytes:
    body = (correlation_id.to_bytes(4, "big") + b"\0" + throttle_ms.to_bytes(4, "big") + error.to_bytes(2, "big")
            + producer_id.to_bytes(8, "big", signed=True) + epoch.to_bytes(2, "big", signed=True) + b"\0")
    return len(body).to_bytes(4, "big") + body


@given(st.none() | st.text(max_size=20), st.text(min_size=1, max_size=200), st.lists(st.tuples(INT31, INT63, INT16), min_size=1, max_size=4))
def test_each_commit_has_the_bytes_that_kio_writes(client_id: str | None, transactional_id: str, commits: list[tuple[int, int, int]]) -> None:
    frames = CommitFrames(VERSION, client_id, transactional_id)
    for correlation_id, producer_id, epoch in commits:
        expected = encode_request(Api.END_TXN, VERSION, correlation_id, client_id, {
            "transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch, "committed": True})
        assert bytes(frames.request(correlation_id, producer_id, epoch)) == len(expected).to_bytes(4, "big") + expected


@given(INT31, INT63, INT16)
def test_the_usual_answer_has_the_next_producer_id_and_epoch(correlation_id: int, producer_id: int, epoch: int) -> None:
    frames = CommitFrames(VERSION, "me", "x")
    frames.request(correlation_id, 1, 1)
    frame = answer(correlation_id, producer_id, epoch)
    message = decode_response(Api.END_TXN, VERSION, memoryview(frame)[4:])
    assert (message.producer_id, message.producer_epoch, message.error_code) == (producer_id, epoch, 0)
    assert frames.is_answered_by(frame)
    assert (frames.producer_id, frames.epoch) == (producer_id, epoch)


@pytest.mark.parametrize("frame", [
    answer(8, 1, 1), answer(7, 1, 1, throttle_ms=5), answer(7, 1, 1, error=51), answer(7, -1, 1), answer(7, 1, -1), answer(7, 1, 1)[:-1],
    answer(7, 1, 1) + b"\0", answer(7, 1, 1)[:-1] + b"\1", answer(7, 1, 1) + answer(8, 1, 1), b"", answer(7, 1, 1)[:4],
], ids=["another request's", "throttled", "an error", "no id", "no epoch", "a part", "a byte more", "tags", "two", "nothing", "a size"])
def test_any_other_answer_is_left_to_others(frame: bytes) -> None:
    frames = CommitFrames(VERSION, "me", "x")
    frames.request(7, 1, 1)
    assert not frames.is_answered_by(frame)
