"""Groups of our members and librdkafka's over SASL_SSL, with sessions of 1.5 s: partitions move both ways without
losses.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pytest

from pyclient.testing import LocalCluster, Security
from tests import secured
from tests.groups import BY_BROKER, ON_ONE_BROKER, Terms, by_members
from tests.interop.librdkafka_members import Confluent, NewerConfluent
from tests.interop.test_mixed_groups import take_turns, under_load
from tests.secured_clients import with_password

pytestmark = [pytest.mark.kafka(security=Security(connections_max_reauth_ms=1500), **ON_ONE_BROKER.kwargs), pytest.mark.timeout(300)]
MECHANISM: Final = "SCRAM-SHA-512"


class SecureConfluent(Confluent):
    """A member with librdkafka, logged in over TLS."""

    @property
    def _terms(self) -> Mapping[str, Any]:
        return {**super()._terms, **secured.by_password(self._cluster, "alice", MECHANISM, "SASL_SSL")}


class NewerSecureConfluent(SecureConfluent, NewerConfluent):
    """The same with the consumer protocol."""

    strategies: ClassVar[Mapping[str, Any]] = NewerConfluent.strategies


@pytest.mark.parametrize(("kind", "strategy", "terms"), [
    *[pytest.param(SecureConfluent, name, by_members(name), id=name) for name in ("range", "roundrobin", "cooperative-sticky")],
    pytest.param(NewerSecureConfluent, "uniform", BY_BROKER, id="consumer protocol"),
])
def test_our_members_and_librdkafkas_share_a_group_over_sasl_and_tls(
        kafka_cluster: LocalCluster, topic: str, kind: type[Confluent], strategy: str, terms: Terms) -> None:
    with under_load(kafka_cluster, topic, strategy) as group:
        ours = take_turns(group, {**terms, **with_password(MECHANISM, "SASL_SSL")(kafka_cluster, "alice")}, kind, strategy)
    assert [each.listener.of("lost") for each in ours] == [[]] * 3
