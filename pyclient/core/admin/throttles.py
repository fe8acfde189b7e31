"""Limits for copies of replicas: which configs begin one, and which ones restore what was there before.

Rule: a config is restored only while it is as this limit has left it; what somebody else has set since stays. An
entry of a list that was there before is never taken out. So the end may be asked for at any time, and again: before
the limit has begun, after a part of it, after a crash.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from pyclient.core.admin.plans import Placement
from pyclient.descriptions.configs import ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigSource, ResourceType
from pyclient.descriptions.replicas import ReassignmentPlan, ReplicationThrottle

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
OWN: Final = (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER)
EVERY_REPLICA: Final = "*"

Values: TypeAlias = Mapping[str, str | None]
"""Configs by name; None: not set at the resource itself."""
Changes: TypeAlias = dict[ConfigResource, dict[str, ConfigChange]]


def throttled_replicas(before: Placement, after: Placement) -> dict[str, dict[str, list[str]]]:
    """The topic configs that say which replicas are throttled, for each topic: those that are copied from, and the new
    ones.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for tp, replicas in after.items():
        sources, targets = found.setdefault(tp.topic, {name: [] for name in LISTS}).values()
        sources += [f"{tp.partition}:{broker}" for broker in before[tp]]
        targets += [f"{tp.partition}:{broker}" for broker in replicas if broker not in before[tp]]
    return {topic: {name: each for name, each in lists.items() if each} for topic, lists in found.items()}


def resources_of(plan: ReassignmentPlan, alive: Iterable[int]) -> dict[ConfigResource, tuple[str, ...]]:
    """What has configs that a limit for *plan* sets, with their names: its brokers that are alive, and its topics."""
    involved = {broker for placed in (plan.before, plan.after) for replicas in placed.values() for broker in replicas}
    brokers = {ConfigResource.broker(broker): RATES for broker in sorted(involved.intersection(alive))}
    lists = throttled_replicas(plan.before, plan.after)
    return {**brokers, **{ConfigResource.topic(topic): tuple(names) for topic, names in lists.items()}}


def own_values(entries: Mapping[str, ConfigEntry], names: Iterable[str]) -> dict[str, str | None]:
    """What is set at the resource itself, not at the defaults of all; None: nothing."""
    found = {name: entries[name].synonyms for name in names if name in entries}
    return {name: next((each.value for each in found.get(name, ()) if each.name == name and each.source in OWN), None) for name in names}


def beginning(throttle: ReplicationThrottle) -> Changes:
    """The changes that begin the limit."""
    changes: Changes = {}
    for resource, before in throttle.before.items():
        if resource.type is ResourceType.BROKER:
            changes[resource] = {name: ConfigChange(ConfigOperation.SET, str(throttle.bytes_per_second)) for name in before}
        else:
            changes[resource] = {name: ConfigChange.append(",".join(added)) for name, added in _added(throttle, resource).items()}
    return {resource: configs for resource, configs in changes.items() if configs}


def ending(throttle: ReplicationThrottle, now: Mapping[ConfigResource, Values]) -> Changes:
    """The changes that restore what was there before, given what is set *now*."""
    changes: Changes = {}
    for resource, values in now.items():
        before = throttle.before[resource]
        if resource.type is ResourceType.BROKER:
            ours = str(throttle.bytes_per_second)
            changes[resource] = {name: _set(before[name]) for name, value in values.items() if value == ours and before[name] != ours}
        else:
            changes[resource] = {name: _without(added, values[name], before[name]) for name, added in _added(throttle, resource).items()
                                 if not set(added).isdisjoint(_entries(values[name]))}
    return {resource: configs for resource, configs in changes.items() if configs}


def _added(throttle: ReplicationThrottle, topic: ConfigResource) -> dict[str, list[str]]:
    """What the limit adds to the lists of a topic: nothing where all replicas are throttled already."""
    before = {name: _entries(value) for name, value in throttle.before[topic].items()}
    lists = throttled_replicas(throttle.plan.before, throttle.plan.after)[topic.name]
    added = {name: [each for each in those if each not in before[name]] for name, those in lists.items() if EVERY_REPLICA not in before[name]}
    return {name: those for name, those in added.items() if those}


def _entries(value: str | None) -> list[str]:
    return [each.strip() for each in (value or "").split(",") if each.strip()]


def _set(value: str | None) -> ConfigChange:
    return ConfigChange.delete() if value is None else ConfigChange(ConfigOperation.SET, value)


def _without(added: Iterable[str], now: str | None, before: str | None) -> ConfigChange:
    if before is None and set(_entries(now)) <= set(added):
        return ConfigChange.delete()
    return ConfigChange.subtract(",".join(added))
