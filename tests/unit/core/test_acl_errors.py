"""Errors of missing rights name operation, resource and the command that grants it: one table for all requests."""
from __future__ import annotations

import pytest

from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.acl_errors import CLUSTER, GROUP, RIGHTS, TOKEN_OWNER, TOPIC, TRANSACTIONAL_ID, error_of
from pyclient.errors import BY_CODE, AuthorizationError, NotLeaderOrFollowerError, TopicAuthorizationError, UnknownServerError, error_for
from pyclient.records import TopicPartition

WHERE = TopicPartition("orders", 3)


@pytest.mark.parametrize(("api", "code"), RIGHTS, ids=str)
def test_each_row_gives_the_brokers_error_with_operation_resource_and_command(api: Api, code: int) -> None:
    error = error_of(api, code, topics=["orders"], group="bills", transactional_id="etl-1", user="User:anna")
    about, option = {
        TOPIC: ("topic 'orders'", "--topic orders"), GROUP: ("group 'bills'", "--group bills"), CLUSTER: ("the cluster", "--cluster"),
        TRANSACTIONAL_ID: ("transactional id 'etl-1'", "--transactional-id etl-1"),
        TOKEN_OWNER: ("user 'User:anna'", "--user-principal User:anna"),
    }[code]
    operation = RIGHTS[api, code].operation
    assert type(error) is BY_CODE[code]
    assert isinstance(error, AuthorizationError)
    assert str(error).startswith(f"not allowed to {operation}{RIGHTS[api, code].link}{about}")
    assert f"--operation {operation.title().replace('_', '')} {option})" in str(error)
    assert f"[{error.name}]" in str(error)


def test_all_that_the_client_asks_about_topics_and_groups_has_a_row() -> None:
    """The rest is asked of any broker, by anybody. Tokens are seen, renewed and ended by who may; others get the
    errors that there is none, or that it is not theirs, which name no right."""
    asked = {api for api, _ in RIGHTS}
    assert SPOKEN.keys() - asked == {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.DESCRIBE_DELEGATION_TOKEN,
                                     Api.RENEW_DELEGATION_TOKEN, Api.EXPIRE_DELEGATION_TOKEN}


def test_a_partition_names_its_topic_and_stays_with_the_error() -> None:
    error = error_of(Api.PRODUCE, 29, "the broker's words.", tp=WHERE)
    assert error.topic_partition == WHERE
    assert str(error) == (
        "orders-3: not allowed to WRITE to topic 'orders': grant it to this client's user (kafka-acls --add --allow-principal User:… "
        "--operation Write --topic orders). the broker's words. [TOPIC_AUTHORIZATION_FAILED]")


def test_names_are_quoted_as_a_shell_wants_them_and_several_are_all_listed() -> None:
    assert "--group 'my group; rm'" in str(error_of(Api.JOIN_GROUP, 30, group="my group; rm"))
    several = str(error_of(Api.CONSUMER_GROUP_HEARTBEAT, 29, topics=["a", "b"]))
    assert "not allowed to DESCRIBE one of the topics 'a', 'b'" in several
    assert "--topic a --topic b" in several
    assert "not allowed to DESCRIBE a topic" in str(error_of(Api.CONSUMER_GROUP_HEARTBEAT, 29))


def test_every_other_error_is_what_it_was() -> None:
    for code in (6, 31, -1):
        plain, found = error_for(code, "words", topic_partition=WHERE), error_of(Api.LIST_OFFSETS, code, "words", tp=WHERE)
        assert (type(found), str(found)) == (type(plain), str(plain))
    assert isinstance(error_of(Api.FETCH, 6), NotLeaderOrFollowerError)
    assert isinstance(error_of(Api.FETCH, -1), UnknownServerError)


def test_an_error_of_its_own_each_time() -> None:
    first, second = error_of(Api.FETCH, 29, topics=["a"]), error_of(Api.FETCH, 29, topics=["b"])
    assert isinstance(first, TopicAuthorizationError)
    assert str(first) != str(second)
