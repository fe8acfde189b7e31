from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.testing.broker_config import OWNED, for_node, new_cluster_id, normalized, render_properties, shared_config


def test_underscores_stand_for_dots_and_booleans_are_lower_case() -> None:
    assert normalized({"auto_create_topics_enable": False, "num.partitions": 3}) == {
        "auto.create.topics.enable": "false", "num.partitions": "3"}


def test_a_name_with_dots_keeps_its_underscores() -> None:
    assert normalized({"listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN"}) == {
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN"}


@pytest.mark.parametrize("name", sorted(OWNED))
def test_a_setting_of_the_clusters_own_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        normalized({name.replace(".", "_"): "x"})


@pytest.mark.parametrize("brokers", [1, 2, 3, 5])
def test_internal_topics_have_as_many_replicas_as_brokers_up_to_three(brokers: int) -> None:
    config = shared_config(brokers)
    factors = {value for name, value in config.items() if name.endswith("replication.factor")}
    assert factors == {str(min(brokers, 3))}
    assert all(int(value) <= brokers for name, value in config.items() if name.endswith(("min.isr", "min.insync.replicas")))


@given(st.dictionaries(st.text("abc.", min_size=1), st.text()))
def test_every_setting_takes_exactly_one_line(config: dict[str, str]) -> None:
    lines = render_properties(config).split("\n")
    assert [line.partition("=")[0] for line in lines[:-1]] == list(config)


def test_a_certificate_keeps_its_line_ends_as_escapes() -> None:
    assert render_properties({"ssl.keystore.key": "-----BEGIN-----\nAB\n-----END-----\n"}) == (
        "ssl.keystore.key=-----BEGIN-----\\nAB\\n-----END-----\n")


def test_a_cluster_id_is_a_uuid_that_no_tool_takes_for_an_option() -> None:
    for _ in range(500):
        drawn = new_cluster_id()
        assert not drawn.startswith("-")
        assert len(base64.urlsafe_b64decode(drawn + "==")) == 16


def test_the_brokers_id_stands_where_a_setting_says_node() -> None:
    assert [for_node("rack-{node}", number) for number in (1, 12)] == ["rack-1", "rack-12"]
    assert for_node("1000", 1) == "1000"
