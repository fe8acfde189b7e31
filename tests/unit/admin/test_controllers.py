"""An admin whose `bootstrap_controllers` lead to brokers, and one whose call has no meaning for controllers."""
from __future__ import annotations

import pytest

from pyclient import Admin
from pyclient.errors import ConfigurationError, MismatchedEndpointTypeError, UnsupportedEndpointTypeError
from pyclient.testing import FakeCluster


def test_brokers_that_are_given_as_controllers_are_named_as_such(fake_cluster: FakeCluster) -> None:
    with Admin(bootstrap_controllers=fake_cluster.bootstrap_servers) as admin:
        for call in (admin.describe_cluster, admin.describe_quorum, lambda: admin.create_topics(["orders"])):
            with pytest.raises(MismatchedEndpointTypeError, match="bootstrap_controllers leads to a broker"):
                call()


def test_fenced_brokers_are_not_asked_of_controllers() -> None:
    with Admin(bootstrap_controllers="127.0.0.1:1") as admin, pytest.raises(UnsupportedEndpointTypeError, match="include_fenced_brokers"):
        admin.describe_cluster(include_fenced_brokers=True)


def test_an_admin_is_bound_to_controllers_or_to_brokers() -> None:
    with pytest.raises(ConfigurationError, match="exclude each other.*; here bootstrap_controllers = '.*:.*', bootstrap_servers = '.*:.*'"):
        Admin(bootstrap_servers="a:9092", bootstrap_controllers="b:9093")
