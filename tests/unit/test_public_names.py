"""The names users import: all there, and none loaded before it is used."""
from __future__ import annotations

import importlib.metadata
import inspect
import subprocess
import sys

import pytest

import pyclient
import pyclient.testing
from pyclient import AsyncAdmin, AsyncConsumer, AsyncProducer, Deliveries, Delivery, Record, Records
from pyclient.foreign_calls import Foreign
from pyclient.net.connect import CLIENT_INFO


@pytest.mark.parametrize("module", [pyclient, pyclient.testing])
def test_every_public_name_loads_and_is_listed(module: object) -> None:
    names: list[str] = module.__all__  # type: ignore[attr-defined]  # a module
    assert {getattr(module, name).__name__ for name in names} == set(names)
    assert set(names) <= set(dir(module))


@pytest.mark.parametrize("module", [pyclient, pyclient.testing])
def test_an_unknown_name_is_an_attribute_error(module: object) -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = module.Nonsense  # type: ignore[attr-defined]  # that is the point


def test_the_package_and_its_pytest_plugin_load_nothing_of_the_client() -> None:
    program = "import sys, pyclient, pyclient.testing.pytest_plugin; print(*(n for n in sys.modules if n.startswith(('pyclient', 'kio', 'docker'))))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(loaded) == ["pyclient", "pyclient.testing", "pyclient.testing.pytest_plugin"]


def test_the_version_brokers_see_is_the_one_of_the_package() -> None:
    assert (pyclient.__version__, CLIENT_INFO.version) == (importlib.metadata.version("pyclient-kafka"),) * 2


FUTURE = "add_done_callback cancelled done exception remove_done_callback result"
PRODUCER = ("abort_transaction begin_transaction close cluster_id commit_transaction flush init_transactions is_connected metrics partitions_for send send_and_wait "
            "send_arrow send_many send_offsets start stop transaction")
CONSUMER = ("assign assignment beginning_offsets close cluster_id commit commit_async committed done end_offsets enforce_rebalance group_metadata high_watermark "
            "is_connected lag list_topics metrics offsets_for_times partitions_for pause paused poll position resume seek seek_to_beginning seek_to_end start stop store_offsets subscribe subscription unsubscribe wakeup")
ADMIN = ("abort_transaction alter_configs alter_group_offsets alter_partition_reassignments alter_quotas alter_scram_users close cluster_id create_acls create_partitions create_topics delete_acls delete_group_offsets delete_groups delete_records delete_topics "
         "describe_acls describe_cluster describe_features describe_quorum remove_members describe_configs describe_groups describe_log_dirs describe_producers describe_quotas describe_scram_users describe_topics describe_transactions elect_leaders fence_producers group_offsets "
         "is_connected plan_even_replicas plan_replication_factors plan_throttle plan_without_brokers throttle_replication end_throttle list_groups list_offsets list_partition_reassignments list_topics list_transactions metrics "
         "add_raft_voter remove_raft_voter alter_replica_log_dirs find_hanging_transactions list_config_resources unregister_broker update_features reset_group_offsets start stop create_delegation_token describe_delegation_tokens expire_delegation_token renew_delegation_token")
SEQUENCE = "count index"


@pytest.mark.parametrize(("cls", "names"), [
    (AsyncProducer, PRODUCER),
    (AsyncConsumer, CONSUMER),
    (AsyncAdmin, ADMIN),
    (Deliveries, f"{FUTURE} rejected"),
    (Delivery, f"{FUTURE} topic partition"),
    (Record, "headers key leader_epoch offset partition timestamp timestamp_type topic value"),
    (Records, f"{SEQUENCE} by_partition filter next_offsets of partitions positions select to_arrow"),
], ids=lambda given: given.__name__ if isinstance(given, type) else "")
def test_completion_shows_what_users_call_and_no_internals(cls: type, names: str) -> None:
    """Sync clients have the names of async ones (tests/unit/test_facades.py)."""
    shown = {name for name in dir(cls) if not name.startswith("_") and not isinstance(inspect.getattr_static(cls, name), Foreign)}
    assert shown == set(names.split())


def test_completion_of_an_object_shows_no_names_of_other_clients() -> None:
    assert {"key", "values"} & set(dir(Records())) == set()
