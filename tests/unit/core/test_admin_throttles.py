"""Limits of replication: what was set before one is there again after it, however it ends; and the files of limits."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import TopicPartition
from pyclient.admin import (
    ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigSource, ConfigSynonym, ConfigType, ReassignmentPlan, ReplicationThrottle, read_throttle,
    write_throttle,
)
from pyclient.core.admin.throttles import LISTS, RATES, beginning, ending, own_values, resources_of, throttled_replicas

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
PLAN = ReassignmentPlan({ONE: (1, 2), TWO: (3,)}, {ONE: (2, 3), TWO: (1, 3)}, {ONE: 5})
TOPIC, BROKER = ConfigResource.topic("t"), ConfigResource.broker(1)
OURS, THEIRS = 50, "70"
Configs = dict[ConfigResource, dict[str, str | None]]

rates = st.sampled_from([None, "10", str(OURS)])
lists = st.sampled_from([None, "", "*", "0:1", "0:1,0:2,1:3,0:3,1:1", "7:7", "0:3,7:7"])


@st.composite
def clusters(draw: st.DrawFn) -> Configs:
    """What an operator has set: rates of the three brokers, lists of the topic."""
    return {resource: {name: draw(rates if name in RATES else lists) for name in names} for resource, names in resources_of(PLAN, (1, 2, 3)).items()}


def throttle(before: Configs) -> ReplicationThrottle:
    return ReplicationThrottle(PLAN, OURS, {resource: dict(configs) for resource, configs in before.items()})


def changed(value: str | None, change: ConfigChange) -> str | None:
    """What a controller makes of a change."""
    entries = [each for each in (value or "").split(",") if each]
    given = str(change.value).split(",")
    match change.operation:
        case ConfigOperation.SET:
            return str(change.value)
        case ConfigOperation.DELETE:
            return None
        case ConfigOperation.APPEND:
            return ",".join([*entries, *(each for each in given if each not in entries)])
        case ConfigOperation.SUBTRACT:
            return ",".join(each for each in entries if each not in given)


def apply(configs: Configs, changes: Mapping[ConfigResource, Mapping[str, ConfigChange]]) -> None:
    for resource, those in changes.items():
        for name, change in those.items():
            configs[resource][name] = changed(configs[resource][name], change)


def copied(configs: Configs) -> Configs:
    return {resource: dict(those) for resource, those in configs.items()}


@given(clusters(), st.data())
def test_the_end_restores_what_was_set_before_a_limit_that_began_in_part_and_again(before: Configs, data: st.DataObject) -> None:
    now, limit = copied(before), throttle(before)
    begun = beginning(limit)
    apply(now, {resource: begun[resource] for resource in data.draw(st.sets(st.sampled_from(sorted(begun))))})
    apply(now, ending(limit, now))
    assert now == before
    assert ending(limit, now) == {}, "a second end has nothing to do"


@given(clusters())
def test_while_a_limit_lasts_rates_are_its_own_and_lists_have_all_its_replicas(before: Configs) -> None:
    now = copied(before)
    apply(now, beginning(throttle(before)))
    assert all(now[resource][name] == str(OURS) for resource in now for name in now[resource] if name in RATES)
    for name, replicas in throttled_replicas(PLAN.before, PLAN.after)["t"].items():
        assert now[TOPIC][name] == "*" or set(replicas) <= set((now[TOPIC][name] or "").split(","))


@given(clusters())
def test_what_somebody_has_set_since_stays(before: Configs) -> None:
    now, limit = copied(before), throttle(before)
    apply(now, beginning(limit))
    now[BROKER][RATES[0]] = THEIRS
    apply(now, {TOPIC: {LISTS[0]: ConfigChange.append("9:9")}} if now[TOPIC][LISTS[0]] != "*" else {})
    apply(now, ending(limit, now))
    assert now[BROKER][RATES[0]] == THEIRS
    assert now[TOPIC][LISTS[0]] == "*" or set((now[TOPIC][LISTS[0]] or "").split(",")) == {*(before[TOPIC][LISTS[0]] or "9:9").split(","), "9:9"} - {""}
    assert {name: now[TOPIC][name] for name in LISTS[1:]} == {name: before[TOPIC][name] for name in LISTS[1:]}


@given(clusters())
def test_a_limit_within_a_limit_ends_with_the_outer_one_in_force(before: Configs) -> None:
    now, outer = copied(before), throttle(before)
    apply(now, beginning(outer))
    during = copied(now)
    inner = ReplicationThrottle(PLAN.undo(), 20, copied(now))
    apply(now, beginning(inner))
    apply(now, ending(inner, now))
    assert now == during
    apply(now, ending(outer, now))
    assert now == before


def test_what_is_throttled_is_all_that_is_copied_from_and_what_is_new() -> None:
    assert throttled_replicas({ONE: (1, 2), TWO: (3,)}, {ONE: (2, 3), TWO: (1, 3)}) == {"t": {
        "leader.replication.throttled.replicas": ["0:1", "0:2", "1:3"], "follower.replication.throttled.replicas": ["0:3", "1:1"]}}
    assert throttled_replicas({ONE: (1, 2)}, {ONE: (2, 1)}) == {"t": {"leader.replication.throttled.replicas": ["0:1", "0:2"]}}


def test_brokers_that_do_not_run_are_not_limited() -> None:
    assert list(resources_of(PLAN, (1, 3))) == [BROKER, ConfigResource.broker(3), TOPIC]


def test_a_value_of_all_brokers_is_not_the_brokers_own() -> None:
    def entry(*sources: ConfigSource) -> ConfigEntry:
        synonyms = tuple(ConfigSynonym(RATES[0], str(source.value), source) for source in sources)
        return ConfigEntry(RATES[0], synonyms[0].value, synonyms[0].source, ConfigType.LONG, False, False, synonyms)

    every, own = ConfigSource.DYNAMIC_BROKER_DEFAULT, ConfigSource.DYNAMIC_BROKER
    assert own_values({RATES[0]: entry(every)}, RATES) == dict.fromkeys(RATES)
    assert own_values({RATES[0]: entry(own, every)}, RATES) == {RATES[0]: "2", RATES[1]: None}


@given(clusters())
def test_a_limit_that_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, before: Configs) -> None:
    path = tmp_path_factory.getbasetemp() / "throttle.json"
    path.unlink(missing_ok=True)
    write_throttle(path, throttle(before))
    assert read_throttle(path) == throttle(before)


def test_the_file_of_a_limit_that_has_not_ended_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "throttle.json"
    write_throttle(path, throttle({BROKER: {RATES[0]: "10"}}))
    with pytest.raises(FileExistsError):
        write_throttle(path, throttle({}))
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ValueError, match=r"throttle.json is no file of write_throttle"):
        read_throttle(path)
