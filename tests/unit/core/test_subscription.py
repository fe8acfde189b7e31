"""What a subscription means: names, a pattern for the client, or one for the brokers (N09)."""
from __future__ import annotations

import pickle
import re

from pyclient.codec.apis import Api
from pyclient.core.cluster import Cluster
from pyclient.core.group.subscription import Subscription
from pyclient.records import SubscriptionPattern
from tests.unit.core.world import answer, topic, view

CLUSTER = Cluster().updated(answer(Api.METADATA, 13, **view(topic("a", 1), topic("aa", 1), topic("__a", 1, is_internal=True))))


def test_names_are_kept_whether_such_topics_exist_or_not() -> None:
    assert Subscription(frozenset({"a", "missing"})).topics(CLUSTER) == {"a", "missing"}


def test_a_pattern_of_the_client_matches_whole_names_of_topics_that_are_not_internal() -> None:
    assert Subscription(pattern=re.compile("a|_*a")).topics(CLUSTER) == {"a"}
    assert Subscription(pattern=re.compile("_*a"), internal=True).topics(CLUSTER) == {"a", "__a"}


def test_N09_the_client_does_not_know_what_a_pattern_for_the_brokers_matches() -> None:
    assert Subscription(brokers_pattern=SubscriptionPattern("a.*")).topics(CLUSTER) == frozenset()


def test_a_subscription_to_nothing_is_false() -> None:
    assert not Subscription()
    assert Subscription(frozenset({"a"}))
    assert Subscription(pattern=re.compile("a"))
    assert Subscription(brokers_pattern=SubscriptionPattern("a"))


def test_a_pattern_for_the_brokers_has_a_readable_repr_and_can_be_pickled() -> None:
    pattern = SubscriptionPattern("orders-.*")
    assert pattern == "orders-.*"
    assert repr(pattern) == "SubscriptionPattern('orders-.*')"
    copy = pickle.loads(pickle.dumps(pattern))
    assert (type(copy), copy) == (SubscriptionPattern, pattern)
