"""Delegation tokens: the requests, what responses mean, and that no secret is shown."""
from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from pyclient import AsyncAdmin
from pyclient.admin import DelegationToken
from pyclient.codec.apis import Api, VersionRange
from pyclient.core.admin.tokens import create_token_call, describe_tokens_call, expire_token_call, renew_token_call
from pyclient.core.calls import Anywhere, Done
from pyclient.errors import DelegationTokenAuthorizationError, DelegationTokenNotFoundError, NotControllerError
from tests.unit.core.test_admin_calls import body, ignore, versions
from tests.unit.core.world import answer

NOT_CONTROLLER, NOT_FOUND, NO_RIGHT = 41, 62, 65
HMAC = b"marker-secret"
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
NOW_MS = int(NOW.timestamp() * 1000)
MINUTE = datetime.timedelta(minutes=1)
TIMES = {"issue_timestamp": NOW, "expiry_timestamp": NOW + MINUTE, "max_timestamp": NOW + 2 * MINUTE}
PEOPLE = {"principal_type": "", "principal_name": "", "token_requester_principal_type": "", "token_requester_principal_name": ""}


@pytest.mark.parametrize("version", versions(Api.CREATE_DELEGATION_TOKEN))
def test_a_token_is_created_for_the_user_or_for_another_one_where_brokers_can(version: int) -> None:
    own = create_token_call(None, ["User:bob"], -1, finish=ignore, deadline=None)
    assert (own.target, own.versions) == (Anywhere.ANY_NODE, None)
    sent = body(own, version)
    assert [(each.principal_type, each.principal_name) for each in sent.renewers] == [("User", "bob")]
    assert getattr(sent, "owner_principal_name", None) is None
    more = {"token_requester_principal_type": "User", "token_requester_principal_name": "eve"} if version >= 3 else {}
    found = own.classify(answer(Api.CREATE_DELEGATION_TOKEN, version, error_code=0, principal_type="User", principal_name="anna", token_id="id", hmac=HMAC,
                             throttle_time=0, **TIMES, **more))
    assert isinstance(found, Done)
    assert found.result == DelegationToken(
        "id", "User:anna", "User:eve" if more else "User:anna", ("User:bob",), NOW_MS, NOW_MS + 60_000, NOW_MS + 120_000, HMAC)


def test_a_token_for_another_user_is_not_created_for_oneself_by_brokers_that_know_no_owners() -> None:
    others = create_token_call("User:a:b", [], 5, finish=ignore, deadline=None)
    assert others.versions == VersionRange(3, 3)
    assert (body(others, 3).owner_principal_type, body(others, 3).owner_principal_name) == ("User", "a:b")
    refused = others.classify(answer(Api.CREATE_DELEGATION_TOKEN, 3, error_code=NO_RIGHT, throttle_time=0, token_id="", hmac=b"", **PEOPLE, **TIMES))
    assert isinstance(refused, DelegationTokenAuthorizationError)
    assert "not allowed to CREATE_TOKENS for user 'User:a:b'" in str(refused)
    assert "--operation CreateTokens --user-principal User:a:b" in str(refused)


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_DELEGATION_TOKEN))
def test_tokens_are_described_of_all_or_of_some_owners(version: int) -> None:
    assert body(describe_tokens_call(None, finish=ignore, deadline=None), version).owners is None
    call = describe_tokens_call(["User:anna"], finish=ignore, deadline=None)
    assert [each.principal_name for each in body(call, version).owners] == ["anna"]
    more = {"token_requester_principal_type": "User", "token_requester_principal_name": "eve"} if version >= 3 else {}
    row = {"principal_type": "User", "principal_name": "anna", "issue_timestamp": 1, "expiry_timestamp": 2, "max_timestamp": 3, "token_id": "id", "hmac": HMAC,
           "renewers": [{"principal_type": "User", "principal_name": "bob"}], **more}
    found = call.classify(answer(Api.DESCRIBE_DELEGATION_TOKEN, version, error_code=0, tokens=[row], throttle_time=0))
    assert isinstance(found, Done)
    assert found.result == [DelegationToken("id", "User:anna", "User:eve" if more else "User:anna", ("User:bob",), 1, 2, 3, HMAC)]


@pytest.mark.parametrize(("api", "make"), [(Api.RENEW_DELEGATION_TOKEN, renew_token_call), (Api.EXPIRE_DELEGATION_TOKEN, expire_token_call)])
def test_a_period_is_answered_with_the_time_when_the_token_expires(api: Api, make: Any) -> None:
    for version in versions(api):
        call = make(HMAC, 60_000, finish=ignore, deadline=None)
        assert body(call, version).hmac == HMAC
        found = call.classify(answer(api, version, error_code=0, expiry_timestamp=NOW, throttle_time=0))
        assert isinstance(found, Done)
        assert found.result == NOW_MS
        assert isinstance(call.classify(answer(api, version, error_code=NOT_FOUND, expiry_timestamp=NOW, throttle_time=0)), DelegationTokenNotFoundError)
        assert isinstance(call.classify(answer(api, version, error_code=NO_RIGHT, expiry_timestamp=NOW, throttle_time=0)), DelegationTokenAuthorizationError)
        moved = call.classify(answer(api, version, error_code=NOT_CONTROLLER, expiry_timestamp=NOW, throttle_time=0))
        assert isinstance(moved.error, NotControllerError)


def test_a_token_shows_its_secret_only_as_the_password_to_log_in_with() -> None:
    token = DelegationToken("id", "User:anna", "User:anna", (), 1, 2, 3, HMAC)
    assert "marker" not in f"{token}{token!r}{renew_token_call(token.hmac, -1, finish=ignore, deadline=None).what}"
    assert token.password == "bWFya2VyLXNlY3JldA=="


@pytest.mark.parametrize(("call", "words"), [
    (lambda admin: admin.create_delegation_token(owner="anna"), "is no principal: write it as ACLs do, such as 'User:anna'"),
    (lambda admin: admin.create_delegation_token(renewers=["User:"]), "is no principal"),
    (lambda admin: admin.create_delegation_token(lifetime_ms=-1), "lifetime_ms=-1: expected a whole number of ms, or None"),
    (lambda admin: admin.describe_delegation_tokens([3]), "3 is no principal"),
    (lambda admin: admin.renew_delegation_token("marker-secret"), "expected a DelegationToken or its HMAC in bytes, got str"),
    (lambda admin: admin.expire_delegation_token(HMAC, True), "period_ms=True"),
])
def test_wrong_arguments_are_refused_before_a_request_and_show_no_secret(call: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        asyncio.run(call(AsyncAdmin(bootstrap_servers="localhost:1")))
    assert words in str(caught.value)
    assert "marker" not in str(caught.value)
