"""SCRAM users and quotas: the requests, what responses mean, and that no password is shown."""
from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from pyclient import AsyncAdmin
from pyclient.admin import QuotaEntity, QuotaName, ScramCredential, ScramDeletion, ScramMechanism, ScramPassword
from pyclient.codec.apis import Api
from pyclient.core.admin.users import Salted, alter_quotas_call, alter_scram_call, describe_quotas_call, describe_scram_call, salted
from pyclient.core.calls import Again, Anywhere, Done
from pyclient.errors import ClusterAuthorizationError, InvalidRequestError, NotControllerError, ResourceNotFoundError
from tests.unit.core.test_admin_calls import body, ignore, versions
from tests.unit.core.world import answer

NOT_ALLOWED, NOT_CONTROLLER, INVALID, NOT_FOUND = 31, 41, 42, 91
SECRET = "open sesame"
ANNA = QuotaEntity(user="anna")
ANNAS_WEB, ANY_USER, NO_NAME = QuotaEntity(user="anna", client_id="web"), QuotaEntity(user=QuotaName.ANY), QuotaEntity(user=QuotaName.DEFAULT)


def describing(users: list[str] | None) -> Any:
    return describe_scram_call(users, finish=ignore, deadline=None)


def test_all_users_are_described_or_those_that_are_named() -> None:
    assert body(describing(None), 0).users is None
    assert [each.name for each in body(describing(["anna"]), 0).users] == ["anna"]


def test_a_user_without_credentials_is_named_and_an_error_is_the_users() -> None:
    rows = [{"user": "anna", "error_code": 0, "error_message": None, "credential_infos": [{"mechanism": 2, "iterations": 8192}, {"mechanism": 9, "iterations": 1}]},
            {"user": "bob", "error_code": NOT_FOUND, "error_message": "no", "credential_infos": []},
            {"user": "eve", "error_code": INVALID, "error_message": "no", "credential_infos": []}]
    found = describing(None).classify(answer(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, error_code=0, error_message=None, results=rows))
    assert isinstance(found, Done)
    assert found.result["anna"] == (ScramCredential(ScramMechanism.SHA_512, 8192), ScramCredential(ScramMechanism.UNKNOWN, 1))
    assert isinstance(found.result["bob"], ResourceNotFoundError)
    assert "user 'bob' has no SCRAM credential" in str(found.result["bob"])
    assert isinstance(found.result["eve"], InvalidRequestError)


def test_a_password_is_salted_and_hashed_before_it_is_sent_and_never_shown() -> None:
    given = ScramPassword(SECRET, ScramMechanism.SHA_256, 4096)
    made = salted(given, b"grains")
    assert made.hashed == hashlib.pbkdf2_hmac("sha256", SECRET.encode(), b"grains", 4096)
    assert not any(SECRET in repr(each) or repr(made.hashed) in repr(each) for each in (given, made))
    row, = body(alter_scram_call({"anna": made}, finish=ignore, deadline=None), 0).upsertions
    assert (row.name, row.mechanism, row.iterations, row.salt, row.salted_password) == ("anna", 1, 4096, made.salt, made.hashed)


def altered(*rows: dict[str, Any]) -> Any:
    call = alter_scram_call({"anna": ScramDeletion(ScramMechanism.SHA_512), "bob": Salted(ScramMechanism.SHA_256, 4096, b"s", b"h")}, finish=ignore, deadline=None)
    assert call.target is Anywhere.CONTROLLER
    read = body(call, 0)
    assert [(each.name, each.mechanism) for each in read.deletions] == [("anna", 2)]
    assert [(each.name, each.mechanism) for each in read.upsertions] == [("bob", 1)]
    return call.classify(answer(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, results=[{"error_message": None, **each} for each in rows]))


def test_each_user_has_its_own_outcome() -> None:
    found = altered({"user": "anna", "error_code": NOT_FOUND, "error_message": "nothing to delete"}, {"user": "bob", "error_code": 0})
    assert isinstance(found, Done)
    assert isinstance(found.result["anna"], ResourceNotFoundError)
    assert "user 'anna': nothing to delete" in str(found.result["anna"])
    assert found.result["bob"] is None


def test_another_controller_is_asked_when_it_has_moved() -> None:
    moved = altered({"user": "anna", "error_code": NOT_CONTROLLER}, {"user": "bob", "error_code": NOT_CONTROLLER})
    assert isinstance(moved, Again)
    assert isinstance(moved.error, NotControllerError)


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_CLIENT_QUOTAS))
@pytest.mark.parametrize(("entity", "components"), [
    (QuotaEntity(), []), (ANNA, [("user", 0, "anna")]), (ANY_USER, [("user", 2, None)]), (NO_NAME, [("user", 1, None)]),
    (ANNAS_WEB, [("user", 0, "anna"), ("client-id", 0, "web")]), (QuotaEntity(ip="10.0.0.1"), [("ip", 0, "10.0.0.1")])])
def test_a_filter_of_quotas_has_a_component_for_each_part(version: int, entity: QuotaEntity, components: list[Any]) -> None:
    read = body(describe_quotas_call(entity, strict=True, finish=ignore, deadline=None), version)
    assert [(each.entity_type, each.match_type, each.match) for each in read.components] == components
    assert read.strict


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_CLIENT_QUOTAS))
def test_quotas_are_found_by_entity_and_none_are_an_empty_answer(version: int) -> None:
    call = describe_quotas_call(ANY_USER, strict=False, finish=ignore, deadline=None)
    rate = {"key": "producer_byte_rate", "value": 5e5}
    rows = [{"entity": [{"entity_type": "user", "entity_name": "anna"}, {"entity_type": "client-id", "entity_name": "web"}], "values": [rate]},
            {"entity": [{"entity_type": "user", "entity_name": None}], "values": [rate]}]
    found = call.classify(answer(Api.DESCRIBE_CLIENT_QUOTAS, version, error_code=0, error_message=None, entries=rows))
    assert found == Done({ANNAS_WEB: {"producer_byte_rate": 5e5}, NO_NAME: {"producer_byte_rate": 5e5}})
    assert call.classify(answer(Api.DESCRIBE_CLIENT_QUOTAS, version, error_code=0, error_message=None, entries=None)) == Done({})


@pytest.mark.parametrize("version", versions(Api.ALTER_CLIENT_QUOTAS))
def test_a_quota_that_is_none_is_removed_and_each_entity_has_its_own_outcome(version: int) -> None:
    call = alter_quotas_call({ANNA: {"producer_byte_rate": 5e5, "consumer_byte_rate": None}, NO_NAME: {"request_percentage": 50}},
                             validate_only=True, finish=ignore, deadline=None)
    read = body(call, version)
    assert read.validate_only
    assert [[(part.entity_type, part.entity_name) for part in each.entity] for each in read.entries] == [[("user", "anna")], [("user", None)]]
    assert [(op.key, op.value, op.remove) for each in read.entries for op in each.ops] == [
        ("producer_byte_rate", 5e5, False), ("consumer_byte_rate", 0.0, True), ("request_percentage", 50.0, False)]
    rows = [{"error_code": 0, "error_message": None, "entity": [{"entity_type": "user", "entity_name": "anna"}]},
            {"error_code": NOT_ALLOWED, "error_message": None, "entity": [{"entity_type": "user", "entity_name": None}]}]
    found = call.classify(answer(Api.ALTER_CLIENT_QUOTAS, version, entries=rows))
    assert isinstance(found, Done)
    assert found.result[ANNA] is None
    assert isinstance(found.result[NO_NAME], ClusterAuthorizationError)
    assert "ALTER_CONFIGS" in str(found.result[NO_NAME])


@pytest.mark.parametrize(("call", "words"), [
    (lambda admin: admin.alter_scram_users({"anna": SECRET}), r"expected ScramPassword\(...\) or ScramDeletion\(...\), got str"),
    (lambda admin: admin.alter_scram_users({"anna": ScramPassword("")}), "the password is empty"),
    (lambda admin: admin.alter_scram_users({"anna": ScramPassword(SECRET, iterations=5)}), "iterations is 5: Kafka takes 4096 to 16384"),
    (lambda admin: admin.alter_scram_users({"anna": ScramDeletion(ScramMechanism.UNKNOWN)}), "no SCRAM mechanism that can be set"),
    (lambda admin: admin.describe_scram_users("anna"), r"write \['anna'\]"),
    (lambda admin: admin.alter_quotas({QuotaEntity(): {"request_percentage": 5}}), "name a user, a client id or an address"),
    (lambda admin: admin.alter_quotas({ANY_USER: {"request_percentage": 5}}), "ANY is for filters"),
    (lambda admin: admin.describe_quotas("anna"), "expected QuotaEntity"),
])
def test_wrong_arguments_are_refused_before_a_request_and_show_no_password(call: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words) as refused:
        asyncio.run(call(AsyncAdmin(bootstrap_servers="127.0.0.1:1")))
    assert SECRET not in str(refused.value)
