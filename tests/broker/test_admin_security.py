"""ACLs, SCRAM users and quotas by Admin, on a real broker with an authorizer."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient import Admin, Producer
from pyclient.admin import (
    Acl, AclFilter, AclOperation, AclPattern, AclPermission, AclResourceType, QuotaEntity, QuotaName, ScramCredential, ScramDeletion, ScramMechanism,
    ScramPassword,
)
from pyclient.errors import ClusterAuthorizationError, InvalidRequestError, KafkaError, PartialFailureError, ResourceNotFoundError, SecurityDisabledError
from pyclient.testing import LocalCluster, Security
from tests.kafka import make_topic
from tests.secured_clients import reaching
from tests.waiting import eventually

secured = pytest.mark.kafka(security=Security())


@pytest.fixture
def admin(kafka_cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as made:
        yield made


@secured
def test_acls_are_created_once_found_by_filters_and_deleted_by_them(admin: Admin, topic: str) -> None:
    read = Acl.topic(topic, "User:anna", AclOperation.READ)
    prefixed = Acl.group(topic, "User:bob", AclOperation.ALL, AclPermission.DENY, "10.0.0.1", AclPattern.PREFIXED)
    admin.create_acls([read, prefixed, read])
    about = AclFilter(resource_name=topic)
    eventually(lambda: admin.describe_acls(about) == sorted([read, prefixed]))
    assert admin.describe_acls(AclFilter(AclResourceType.TOPIC, topic)) == [read]
    assert admin.describe_acls(AclFilter(AclResourceType.GROUP, f"{topic}-7", pattern=AclPattern.MATCH)) == [prefixed]
    assert admin.describe_acls(AclFilter(resource_name=topic, permission=AclPermission.DENY, principal="User:bob")) == [prefixed]
    nothing = AclFilter(resource_name=f"{topic}-unknown")
    assert admin.delete_acls([about, nothing]) == {about: sorted([read, prefixed]), nothing: []}
    eventually(lambda: not admin.describe_acls(about))


@secured
def test_of_several_acls_the_wrong_one_is_named_and_the_others_are_created(admin: Admin, topic: str) -> None:
    good, bad = Acl.topic(topic, "User:anna", AclOperation.READ), Acl.topic("", "User:anna", AclOperation.READ)
    with pytest.raises(PartialFailureError) as failed:
        admin.create_acls([good, bad])
    assert failed.value.results == {good: None}
    assert list(failed.value.errors) == [bad]
    eventually(lambda: admin.describe_acls(AclFilter(resource_name=topic)) == [good])


@secured
def test_a_user_without_rights_learns_which_one_is_missing(kafka_cluster: LocalCluster, topic: str) -> None:
    user = kafka_cluster.credentials.users["bob"]
    with Admin(**reaching(kafka_cluster, "SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_plain_username="bob", sasl_plain_password=user.password)) as admin:
        with pytest.raises(ClusterAuthorizationError, match="not allowed to ALTER the cluster"):
            admin.create_acls([Acl.topic(topic, "User:anna", AclOperation.READ)])
        with pytest.raises(ClusterAuthorizationError, match="not allowed to DESCRIBE the cluster"):
            admin.describe_acls()


def test_a_cluster_without_an_authorizer_says_so(admin: Admin) -> None:
    with pytest.raises(SecurityDisabledError):
        admin.describe_acls()


@secured
def test_a_user_logs_in_with_the_password_that_was_set_until_it_is_deleted(kafka_cluster: LocalCluster, admin: Admin, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    name, password = f"user-{topic}", 'it\'s "so" é'
    admin.create_acls([Acl.topic(topic, f"User:{name}", AclOperation.WRITE)])
    admin.alter_scram_users({name: [ScramPassword(password), ScramPassword(password, ScramMechanism.SHA_256, 4096)]})
    expected = {name: (ScramCredential(ScramMechanism.SHA_256, 4096), ScramCredential(ScramMechanism.SHA_512, 8192))}
    eventually(lambda: name in admin.describe_scram_users())
    eventually(lambda: {user: tuple(sorted(found)) for user, found in admin.describe_scram_users([name]).items()} == expected)

    def sends(mechanism: str) -> bool:
        try:
            with Producer(**reaching(kafka_cluster, "SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_plain_username=name, sasl_plain_password=password)) as producer:
                return producer.send(topic, b"x").result(20).offset is not None
        except KafkaError:
            return False  # another broker thread may not have it yet

    eventually(lambda: sends("SCRAM-SHA-512"))
    eventually(lambda: sends("SCRAM-SHA-256"))
    admin.alter_scram_users({name: [ScramDeletion(ScramMechanism.SHA_256), ScramDeletion(ScramMechanism.SHA_512)]})
    eventually(lambda: name not in admin.describe_scram_users())
    with pytest.raises(ResourceNotFoundError, match=f"user '{name}' has no SCRAM credential"):
        admin.describe_scram_users([name])
    with pytest.raises(ResourceNotFoundError):
        admin.alter_scram_users({name: ScramDeletion(ScramMechanism.SHA_256)})


def test_quotas_are_set_found_by_entity_and_removed(admin: Admin, topic: str) -> None:
    anna, web, others = QuotaEntity(user=topic), QuotaEntity(user=topic, client_id="web"), QuotaEntity(client_id=QuotaName.DEFAULT)
    annas, webs = {"producer_byte_rate": 5e5, "request_percentage": 50.0}, {"consumer_byte_rate": 1e6}
    admin.alter_quotas({anna: annas, web: webs})
    eventually(lambda: admin.describe_quotas(anna) == {anna: annas, web: webs})
    assert admin.describe_quotas(anna, strict=True) == {anna: annas}
    assert admin.describe_quotas(QuotaEntity(user=topic, client_id=QuotaName.ANY)) == {web: webs}
    admin.alter_quotas({others: {"request_percentage": 500}}, validate_only=True)
    assert others not in admin.describe_quotas()
    with pytest.raises(InvalidRequestError):
        admin.alter_quotas({anna: {"no_such_rate": 5}})
    admin.alter_quotas({anna: dict.fromkeys(annas), web: dict.fromkeys(webs)})
    eventually(lambda: not admin.describe_quotas(anna))
