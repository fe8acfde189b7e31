"""The model answers as a real broker does: the same requests in every version, all fields of the answers compared."""
from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final, NamedTuple

import pytest

from pyclient.codec.apis import Api, VersionRange
from pyclient.testing import LocalCluster, Security
from pyclient.testing.fake.cluster import FakeCluster
from pyclient.testing.fake.handlers import HANDLERS
from pyclient.testing.fake.model.profiles import NEWEST, PROFILES
from tests.broker.conformance import (
    scripts_admin,
    scripts_cluster,
    scripts_groups,
    scripts_groups_consumer,
    scripts_logins,
    scripts_produce,
    scripts_reading,
    scripts_three,
    scripts_transactional_offsets,
    scripts_transactions,
)
from tests.broker.conformance.allowed import ALLOWED, Allowance
from tests.broker.conformance.comparing import Comparison
from tests.broker.conformance.peer import offered_by, play
from tests.broker.conformance.script import Plain, Run, Script

SCRIPTS: Final = (*scripts_cluster.SCRIPTS, *scripts_produce.SCRIPTS, *scripts_reading.SCRIPTS, *scripts_groups.SCRIPTS,
                  *scripts_groups_consumer.SCRIPTS, *scripts_admin.SCRIPTS, *scripts_logins.SCRIPTS, *scripts_transactions.SCRIPTS, *scripts_transactional_offsets.SCRIPTS,
                  *scripts_transactional_offsets.OF_CONSUMER_GROUPS)
OF_TRANSACTIONS: Final = (*scripts_transactions.SCRIPTS, *scripts_transactional_offsets.SCRIPTS)
"""Also compared with brokers of the protocol that was before KIP-890."""
ON_BROKER: Final = {"log.initial.task.delay.ms": 3_600_000}
"""Records of the scripts are old; a broker would begin to delete them after half a minute."""

OFFSETS: Final = {"offsets.topic.num.partitions": 1}
"""Of the topic of offsets, as `LocalCluster` makes it."""

AS_A_BROKER: Final = {"group.consumer.heartbeat.interval.ms": 5000}
"""Where the model's default is another one."""


LATE_REFUSALS: Final = {"connection.failed.authentication.delay.ms": 20}
"""Where the model's default, none, is another one than brokers', 100."""


OLD: Final = "3.9"
REAL: Final = {NEWEST: "4.3.1", OLD: "3.9.1"}
"""The broker that a profile is compared with."""


def cases(scripts: Iterable[Script], profile: str = NEWEST) -> Iterator[tuple[Script, int]]:
    """Every script in every version of its API."""
    for script in scripts:
        low, high = PROFILES[profile].apis[script.api]
        for version in range(max(low, script.since), min(high, script.until) + 1):
            yield script, version


CASES: Final = {f"{script.name}-v{version}": (script, version) for script, version in cases(SCRIPTS)}
CASES_OF_THREE: Final = {f"{script.name}-v{version}": (script, version) for script, version in cases(scripts_three.SCRIPTS)}
CASES_OF_SLOW: Final = {f"{script.name}-v{version}": (script, version) for script, version in cases(scripts_groups_consumer.SLOW)}
CASES_OF_LOGINS: Final = {f"{script.name}-v{version}": (script, version) for script, version in cases(scripts_logins.LOGINS)}
CASES_OF_SESSIONS: Final = {f"{script.name}-v{version}": (script, version) for script, version in cases(scripts_logins.SESSIONS)}

CASES_OF_V1: Final = {f"{script.name}-v{version}": (script, version) for script, version in cases(OF_TRANSACTIONS)}
CASES_OF_OLD: Final = {f"{script.name}-v{version}": (script, version) for script, version in cases(OF_TRANSACTIONS, OLD)}


class Pair(NamedTuple):
    """A real cluster and the model of one, and what the cases found on them."""

    real: tuple[str, int]
    fake: tuple[str, int]
    offered: dict[Api, VersionRange]
    used: set[Allowance]
    in_containers: bool
    turns: Mapping[tuple[str, int], Iterator[int]]


@pytest.fixture(scope="module")
def used() -> set[Allowance]:
    """The allowances that were needed."""
    return set()


@pytest.fixture(scope="module")
def done() -> set[str]:
    """The cases that ran."""
    return set()


@pytest.fixture(scope="module")
def pair(used: set[Allowance]) -> Iterator[Pair]:
    """Both clusters, for all cases: later scripts see what earlier ones left, on both alike."""
    yield from paired(1, {"num.partitions": 2, **AS_A_BROKER, **OFFSETS, "group.consumer.assignment.interval.ms": 0}, used)


@pytest.fixture(scope="module")
def pair_of_v1(used: set[Allowance]) -> Iterator[Pair]:
    """Both clusters, with the protocol of transactions that was before KIP-890."""
    yield from paired(1, {**AS_A_BROKER, **OFFSETS}, used, features={"transaction.version": 1})


@pytest.fixture(scope="module")
def pair_of_old(used: set[Allowance]) -> Iterator[Pair]:
    """Both clusters of the oldest release."""
    yield from paired(1, OFFSETS, used, profile=OLD)


@pytest.fixture(scope="module")
def pair_of_three(used: set[Allowance]) -> Iterator[Pair]:
    """Both clusters with three brokers each."""
    yield from paired(3, {"auto.create.topics.enable": False, "min.insync.replicas": 2}, used)


@pytest.fixture(scope="module")
def pair_of_slow(used: set[Allowance]) -> Iterator[Pair]:
    """Both clusters, with a long interval between target assignments."""
    yield from paired(1, {**AS_A_BROKER, "group.consumer.assignment.interval.ms": 15_000}, used)


@pytest.fixture(scope="module")
def pair_with_logins(used: set[Allowance]) -> Iterator[Pair]:
    """Both clusters, of the same users."""
    yield from paired(1, LATE_REFUSALS, used, Security())


@pytest.fixture(scope="module")
def pair_with_sessions(used: set[Allowance]) -> Iterator[Pair]:
    """Both clusters, with the same users, who must re-authenticate after a while."""
    longest = scripts_logins.SESSION_MS
    yield from paired(1, {**LATE_REFUSALS, "connections.max.reauth.ms": longest}, used, Security(connections_max_reauth_ms=longest))


def paired(brokers: int, config: Mapping[str, object], used: set[Allowance], security: Security | None = None, *, profile: str = NEWEST,
           features: Mapping[str, int] = MappingProxyType({})) -> Iterator[Pair]:
    users = None if security is None else security.users
    with (LocalCluster(brokers, config={**config, **ON_BROKER}, security=security, version=REAL[profile], features=features) as real,
          FakeCluster(brokers, config=config, sasl=users, version=profile, features=features) as fake):
        address = first_of(real.bootstrap("PLAINTEXT" if security is None else "SASL_PLAINTEXT"))
        ours = PROFILES[profile].apis
        offered = {api: ours[api].common(versions) for api, versions in offered_by(address).items() if api in ours}
        yield Pair(address, first_of(fake.bootstrap_servers), offered, used, real.kind == "container", defaultdict(itertools.count))


def first_of(bootstrap_servers: str) -> tuple[str, int]:
    """The address of broker 1."""
    host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
    return host.strip("[]"), int(port)


def differences(script: Script, version: int, pair: Pair) -> list[str]:
    """What differs in one case, each line with its step."""
    comparison, turn = Comparison(pair.used), next(pair.turns[script.name, version])
    runs = [Run(script, version, turn) for _ in range(2)]
    with ThreadPoolExecutor(2) as both:  # a script's waits pass on both sides at once
        answers = list(both.map(play, runs, (pair.real, pair.fake), (pair.offered, pair.offered)))
    mine = runs[0].name("")
    return [
        f"step {number} {step.name} ({step.api.title} v{step_version}): {line}"
        for number, ((step, step_version, left), (_, _, right)) in enumerate(zip(*answers, strict=True), 1)
        for line in comparison.differences(step.api, own(step.api, left, mine), own(step.api, right, mine))
    ]


def own(api: Api, answer: Plain, mine: str) -> Plain:
    """Without the groups of other cases, whose members' sessions expire at different times on each side."""
    if api is not Api.LIST_GROUPS or not isinstance(answer, Mapping):
        return answer
    return {**answer, "groups": [group for group in answer["groups"] if group["group_id"].endswith(mine)]}


@pytest.mark.parametrize("case", CASES)
def test_the_model_answers_as_the_broker(pair: Pair, done: set[str], case: str) -> None:
    script, version = CASES[case]
    done.add(case)
    assert not differences(script, version, pair)


@pytest.mark.parametrize("case", CASES_OF_THREE)
def test_the_model_of_three_answers_as_one_of_three_brokers(pair_of_three: Pair, done: set[str], case: str) -> None:
    script, version = CASES_OF_THREE[case]
    done.add(case)
    assert not differences(script, version, pair_of_three)


@pytest.mark.parametrize("case", CASES_OF_SLOW)
def test_the_model_of_a_slow_coordinator_answers_as_one(pair_of_slow: Pair, done: set[str], case: str) -> None:
    script, version = CASES_OF_SLOW[case]
    done.add(case)
    assert not differences(script, version, pair_of_slow)


@pytest.mark.parametrize("case", CASES_OF_LOGINS)
def test_the_model_with_logins_answers_as_a_broker_with_logins(pair_with_logins: Pair, done: set[str], case: str) -> None:
    script, version = CASES_OF_LOGINS[case]
    done.add(case)
    assert not differences(script, version, pair_with_logins)


@pytest.mark.parametrize("case", CASES_OF_SESSIONS)
def test_the_model_ends_sessions_as_a_broker(pair_with_sessions: Pair, done: set[str], case: str) -> None:
    script, version = CASES_OF_SESSIONS[case]
    done.add(case)
    assert not differences(script, version, pair_with_sessions)


@pytest.mark.parametrize("case", CASES_OF_V1)
def test_the_model_of_protocol_v1_answers_as_a_broker_of_it(pair_of_v1: Pair, done: set[str], case: str) -> None:
    script, version = CASES_OF_V1[case]
    done.add(f"V1 {case}")
    assert not differences(script, version, pair_of_v1)


@pytest.mark.parametrize("case", CASES_OF_OLD)
def test_the_model_of_the_oldest_release_answers_as_a_broker_of_it(pair_of_old: Pair, done: set[str], case: str) -> None:
    script, version = CASES_OF_OLD[case]
    done.add(f"old {case}")
    assert not differences(script, version, pair_of_old)


def test_every_allowance_is_needed(pair: Pair, used: set[Allowance], done: set[str]) -> None:
    if done != {*CASES, *CASES_OF_THREE, *CASES_OF_SLOW, *CASES_OF_LOGINS, *CASES_OF_SESSIONS, *(f"V1 {case}" for case in CASES_OF_V1),
                *(f"old {case}" for case in CASES_OF_OLD)}:
        pytest.skip("only some of the cases ran")
    assert [row for row in ALLOWED if row not in used and (pair.in_containers or not row.containers)] == []


def test_every_handled_api_has_a_script() -> None:
    assert set(HANDLERS) <= {script.api for script in SCRIPTS}
