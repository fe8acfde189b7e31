"""Delegation tokens by Admin, and logins with them, on a real broker (KIP-48)."""
from __future__ import annotations

from typing import Any

import pytest

from pyclient import Admin, Producer
from pyclient.admin import Acl, AclOperation, DelegationToken
from pyclient.errors import (
    DelegationTokenAuthorizationError, DelegationTokenDisabledError, DelegationTokenNotFoundError, KafkaError, SaslAuthenticationError,
    UnsupportedByAuthenticationError,
)
from pyclient.testing import LocalCluster, Security
from tests.kafka import make_topic
from tests.secured_clients import reaching
from tests.waiting import eventually

pytestmark = pytest.mark.kafka(security=Security())


def options(cluster: LocalCluster, user: str) -> dict[str, Any]:
    password = cluster.credentials.users[user].password
    return reaching(cluster, "SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", sasl_plain_username=user, sasl_plain_password=password)


def by(token: DelegationToken, cluster: LocalCluster, **more: Any) -> dict[str, Any]:
    return reaching(cluster, "SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_plain_username=token.token_id, sasl_plain_password=token.password,
                    sasl_scram_tokenauth=True, **more)


def test_a_token_is_created_found_renewed_and_ended(kafka_cluster: LocalCluster) -> None:
    with Admin(**options(kafka_cluster, "bob")) as admin:
        token = admin.create_delegation_token(renewers=["User:alice"], lifetime_ms=3_600_000)
        assert (token.owner, token.requester, token.renewers) == ("User:bob", "User:bob", ("User:alice",))
        assert token.max_ms - token.issued_ms == 3_600_000
        assert token.hmac.hex() not in repr(token)
        eventually(lambda: token in admin.describe_delegation_tokens(["User:bob"]))
        assert admin.describe_delegation_tokens(["User:another"]) == []
        until = admin.renew_delegation_token(token, 60_000)
        assert token.issued_ms < until < token.max_ms
        eventually(lambda: [each.expires_ms for each in admin.describe_delegation_tokens() if each.token_id == token.token_id] == [until])
        assert admin.expire_delegation_token(token.hmac) <= until
        eventually(lambda: token.token_id not in [each.token_id for each in admin.describe_delegation_tokens()])
        with pytest.raises(DelegationTokenNotFoundError):
            admin.renew_delegation_token(token)


def test_a_token_logs_in_as_its_owner_until_it_ends(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as operator, Admin(**options(kafka_cluster, "bob")) as admin:
        operator.create_acls([Acl.topic(topic, "User:bob", AclOperation.WRITE)])
        token = admin.create_delegation_token()

        def sends() -> bool:
            try:
                with Producer(**by(token, kafka_cluster)) as producer:
                    return producer.send(topic, b"x").result(20).offset is not None
            except KafkaError:
                return False

        eventually(sends)
        with Admin(**by(token, kafka_cluster)) as by_token, pytest.raises(UnsupportedByAuthenticationError):
            by_token.create_delegation_token()
        admin.expire_delegation_token(token)
        eventually(lambda: not sends())
        with pytest.raises(SaslAuthenticationError), Producer(**by(token, kafka_cluster, max_block_ms=20_000)) as producer:
            producer.send(topic, b"x").result(20)


def test_without_a_login_no_token_is_created(kafka_cluster: LocalCluster) -> None:
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin, pytest.raises(UnsupportedByAuthenticationError):
        admin.create_delegation_token()


def test_another_users_token_takes_a_right_that_the_error_names(kafka_cluster: LocalCluster) -> None:
    with Admin(**options(kafka_cluster, "bob")) as admin, pytest.raises(DelegationTokenAuthorizationError) as caught:
        admin.create_delegation_token(owner="User:carla")
    assert "not allowed to CREATE_TOKENS for user 'User:carla'" in str(caught.value)


@pytest.mark.kafka(security=Security(), delegation_token_secret_key="")
def test_brokers_without_a_secret_say_that_tokens_are_disabled(kafka_cluster: LocalCluster) -> None:
    with Admin(**options(kafka_cluster, "bob")) as admin, pytest.raises(DelegationTokenDisabledError, match="delegation.token.secret.key"):
        admin.create_delegation_token()
