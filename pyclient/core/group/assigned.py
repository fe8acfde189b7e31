"""What a member takes of its assignment (G09, N11). Knows topics and partitions only.

The leader of a group, or its coordinator, makes it: mistakes there must not cost this member its time or memory.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import attrs

from pyclient.core.cluster import Cluster
from pyclient.records import TopicPartition

MOST_ASSIGNED: Final = 200_000
"""Partitions of one member: as many as the largest clusters have."""
MOST_UNKNOWN: Final = 2_000
"""Partitions that metadata does not show, perhaps not yet. Each costs a look-up and memory until it does."""
MOST_SHOWN: Final = 3


@attrs.frozen
class Assigned:
    """What a member accepts of an assignment, and what is wrong with the rest, if there is a rest."""

    accepted: tuple[TopicPartition, ...]
    wrong: str = ""


def accepted_of(assigned: Iterable[TopicPartition], subscribed: Collection[str], cluster: Cluster) -> Assigned:
    """Only partitions of *subscribed* topics, at most `MOST_UNKNOWN` of them unknown to *cluster*."""
    strangers: dict[str, None] = {}
    own: dict[TopicPartition, None] = {}
    for tp in assigned:
        if tp.topic in subscribed:
            own[tp] = None
        else:
            strangers[tp.topic] = None
    known, dropped = within_limits(own, cluster)
    return Assigned(tuple(known), "; ".join(filter(None, (_not_subscribed(strangers), not_shown(dropped)))))


def within_limits(partitions: Iterable[TopicPartition], cluster: Cluster) -> tuple[list[TopicPartition], int]:
    """The partitions that *cluster* has, and at most `MOST_UNKNOWN` others; how many were left out."""
    kept: list[TopicPartition] = []
    unknown = dropped = 0
    for tp in partitions:
        is_known = cluster.partition(tp) is not None
        unknown += not is_known
        if len(kept) < MOST_ASSIGNED and (is_known or unknown <= MOST_UNKNOWN):
            kept.append(tp)
        else:
            dropped += 1
    return kept, dropped


def not_shown(dropped: int) -> str:
    """The sentence about partitions that were left out; empty for none."""
    return f"{dropped} assigned partitions are left out: metadata does not show them" if dropped else ""


def _not_subscribed(topics: Collection[str]) -> str:
    shown = ", ".join(map(repr, list(topics)[:MOST_SHOWN])) + (", …" if len(topics) > MOST_SHOWN else "")
    return f"the assignment holds topics that are not subscribed to: {shown}" if topics else ""
