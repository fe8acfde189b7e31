"""How clients begin and end: nothing is left behind, whatever happened to them."""
from __future__ import annotations

import pickle

import pytest

from pyclient import Producer
from pyclient.testing import LocalCluster


def test_a_client_refuses_to_be_pickled_and_names_what_to_use_instead(kafka_cluster: LocalCluster) -> None:
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer, pytest.raises(TypeError, match="shared_producer"):
        pickle.dumps(producer)
