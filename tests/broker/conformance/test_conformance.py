"""The model answers as a real broker does: the same requests in every version, all fields of the answers compared."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from pyclient.codec.apis import Api, VersionRange
from pyclient.testing import LocalCluster
from pyclient.testing.fake.cluster import FakeCluster
from pyclient.testing.fake.families import FAMILIES
from pyclient.testing.fake.profiles import NEWEST, PROFILES
from tests.broker.conformance import scripts_admin, scripts_cluster, scripts_groups, scripts_produce, scripts_reading
from tests.broker.conformance.allowed import ALLOWED, Allowance
from tests.broker.conformance.comparing import Comparison
from tests.broker.conformance.peer import offered_by, run
from tests.broker.conformance.script import Script

SCRIPTS: Final = (*scripts_cluster.SCRIPTS, *scripts_produce.SCRIPTS, *scripts_reading.SCRIPTS, *scripts_groups.SCRIPTS, *scripts_admin.SCRIPTS)
CONFIG: Final = {"num.partitions": 2}
ON_BROKER: Final = {"log.initial.task.delay.ms": 3_600_000}
"""Records of the scripts are old; a broker would begin to delete them after half a minute."""


def cases() -> Iterator[tuple[Script, int]]:
    """Every script in every version of its API."""
    for script in SCRIPTS:
        low, high = PROFILES[NEWEST].apis[script.api]
        for version in range(max(low, script.since), min(high, script.until) + 1):
            yield script, version


CASES: Final = {f"{script.name}-v{version}": (script, version) for script, version in cases()}


class Pair(NamedTuple):
    """A real cluster and the model of one, and what the cases found on them."""

    real: tuple[str, int]
    fake: tuple[str, int]
    offered: dict[Api, VersionRange]
    used: set[Allowance]
    done: set[str]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Both clusters, for all cases: later scripts see what earlier ones left, on both alike."""
    with LocalCluster(config={**CONFIG, **ON_BROKER}) as real, FakeCluster(config=CONFIG) as fake:
        address = real.nodes[0].host, real.nodes[0].port
        host, _, port = fake.bootstrap_servers.partition(":")
        offered = {api: PROFILES[NEWEST].apis[api].common(versions) for api, versions in offered_by(address).items()}
        yield Pair(address, (host, int(port)), offered, set(), set())


def differences(script: Script, version: int, pair: Pair) -> list[str]:
    """What differs in one case, each line with its step."""
    comparison = Comparison(pair.used)
    answers = [run(script, version, address, pair.offered) for address in (pair.real, pair.fake)]
    return [
        f"step {number} {step.name} ({step.api.title} v{step_version}): {line}"
        for number, ((step, step_version, left), (_, _, right)) in enumerate(zip(*answers, strict=True), 1)
        for line in comparison.differences(step.api, left, right)
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_model_answers_as_the_broker(pair: Pair, case: str) -> None:
    script, version = CASES[case]
    pair.done.add(case)
    assert not differences(script, version, pair)


def test_no_difference_is_allowed_that_nobody_needs(pair: Pair) -> None:
    if pair.done != set(CASES):
        pytest.skip("only some of the cases ran")
    assert [row for row in ALLOWED if row not in pair.used] == []


def test_every_family_has_a_script() -> None:
    assert set(FAMILIES) <= {script.api for script in SCRIPTS}
