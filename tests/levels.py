"""Which tests `make test` leaves to `make test-all`: the one place that says so.

`make test` covers units, the fake cluster, a real broker's main paths, the README and Spark's demo in a few minutes.
What a user meets less often, or what takes long for what it adds, is extended. Both leave tests marked ``proof`` to
`make proof`.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXTENDED: Final[Mapping[str, str]] = {
    # real brokers: beyond the main paths of producer, consumer, group and admin
    "tests/containers": "brokers in containers; tests/broker runs the same on embedded ones",
    "tests/broker/conformance": "the fake cluster beside real brokers, field by field",
    "tests/broker/durability": "three brokers killed and paused under load",
    "tests/broker/test_access.py": "ACLs, each on a cluster with users",
    "tests/broker/test_admin.py::test_a_broker_that_is_shut_down_is_fenced_until_it_is_unregistered_once": "three brokers, one of them stopped",
    "tests/broker/test_admin.py::test_a_controller_is_removed_from_the_voters_and_added_again_by_its_directory": "three brokers",
    "tests/broker/test_admin_beside_java.py": "all questions once by Java, on a cluster with users",
    "tests/broker/test_admin_replicas.py": "replicas that move between three brokers",
    "tests/broker/test_admin_transactions.py::test_a_producer_is_fenced_within_seconds_where_the_log_of_transactions_has_three_replicas": "three brokers; units have the timeout that is sent",
    "tests/broker/test_admin_security.py": "ACLs and users, on a cluster with an authorizer",
    "tests/broker/test_benchmarks.py": "each benchmark once",
    "tests/broker/test_delegation_tokens.py": "tokens, on a cluster with users",
    "tests/broker/test_failover.py": "brokers that die and come back",
    "tests/broker/test_group_members.py": "timeouts and fencing of members, in real seconds",
    "tests/broker/test_groups.py::test_N07_a_group_goes_on_when_another_broker_becomes_its_coordinator": "three brokers; the fake cluster has it too",
    "tests/broker/test_java_reads_our_batches.py": "Java's tools, a JVM for each case",
    "tests/broker/test_local_cluster.py": "clusters of each kind are started and ended",
    "tests/broker/test_local_cluster_command.py": "clusters of each kind are started and ended",
    "tests/broker/test_local_cluster_embedded.py": "clusters and start-up archives, in real seconds",
    "tests/broker/test_near_replicas.py": "three brokers in racks",
    "tests/broker/test_offsets_in_database.py": "an example",
    "tests/broker/test_process_hooks.py": "programs that fork, end and are killed",
    "tests/broker/test_producer_limits.py": "clusters with settings of their own",
    "tests/broker/test_secure_connections.py::test_async_clients_log_in_to_three_brokers_by_each_proof": "three secured brokers, each proof; one broker stays",
    "tests/broker/test_secure_connections.py::test_sync_clients_log_in_to_three_brokers": "three secured brokers; one broker stays",
    "tests/broker/test_secure_refusals.py": "each refusal on a secured cluster; the simulation has them in virtual time",
    "tests/broker/test_secure_sessions.py": "sessions that end, in real seconds",
    "tests/broker/test_secured_cluster.py": "secured clusters of each kind",
    "tests/interop": "other clients beside ours, and a real schema registry",
    # what users install
    "tests/test_packaging.py": "the wheel is built, which takes minutes",
    # Spark: the flights demo stays
    "tests/spark/test_benchmark.py": "the benchmark of Spark once",
    "tests/spark/test_exactly_once.py": "streams whose tasks and drivers fail at each step",
    "tests/spark/test_notebook.py": "an example",
    "tests/spark/test_registry_columns.py": "columns of a registry in tasks; units have each case",
    "tests/spark/test_security.py": "each way to log in, a JVM's streams for each",
    "tests/spark/test_sink.py": "streams that fail and restart",
    "tests/spark/test_source.py": "streams that fail and restart",
    "tests/spark/test_sql_programs.py": "examples, two of them with a Spark of their own",
    "tests/spark/test_watching.py": "a stream with a listener; units have each report",
    # formats with a schema
    "tests/test_serializers_docs.py": "each program of the page in a process of its own",
    "tests/unit/test_avro.py": "generated schemas beside the reference implementation",
    "tests/unit/test_avro_columns.py": "generated schemas beside single records",
    "tests/unit/test_avro_encoder.py": "generated schemas beside single records",
    "tests/unit/test_avro_values.py": "generated schemas and values beside fastavro",
    "tests/unit/test_registry_client.py": "each failure of a registry, in real seconds",
    "tests/unit/test_registry_clients.py": "serdes of a registry in all clients",
    "tests/unit/test_registry_serdes.py": "each kind with a registry",
    # chance
    "tests/fuzz": "thousands of damaged inputs",
    "tests/threads": "threads that change places by a seed",
    "tests/simulation/test_exactly_once_seeds.py": "10 seeds of chains",
    "tests/simulation/test_seeds.py": "150 seeds of the whole client",
    "tests/simulation/test_broken_logins.py": "logins that break at every byte",
    "tests/simulation/test_errors_in_peace.py": "every error of every request",
    "tests/unit/testing/test_hostile_peer.py::test_an_attack_costs_no_client_more_than_its_bounds": "91 attacks, each on every kind of client",
    "tests/unit/testing/simulation/test_tls_world.py": "handshakes that break at every byte",
    "tests/unit/test_example_offsets.py": "an example that is killed at every line",
}
"""A folder, a file or ``file::function`` → the reason."""


SHARING: Final[Mapping[str, str]] = {
    "tests/broker/durability/test_exactly_once.py": "three brokers",
    "tests/broker/durability/test_groups_of_readers.py": "three brokers",
    "tests/broker/durability/test_three_brokers.py": "three brokers",
    "tests/broker/matrix/test_matrix.py": "one secured broker, and three",
    "tests/broker/test_admin_replicas.py": "three brokers",
    "tests/broker/test_failover.py": "three brokers",
    "tests/broker/test_secure_connections.py": "one secured broker, and three",
    "tests/broker/test_secure_refusals.py": "one secured broker, and three",
    "tests/broker/test_secured_cluster.py": "one secured broker, and three",
}
"""A file → the clusters for which it runs in the same worker as the others that need them: three brokers are started
once, not by each worker.
"""


def is_extended(nodeid: str) -> bool:
    """Whether the table names the test, its file or a folder above it."""
    file, _, rest = nodeid.partition("::")
    places = file.split("/")
    function = rest.partition("[")[0].rpartition("::")[2]
    prefixes = {"/".join(places[:end]) for end in range(1, len(places) + 1)}
    return not EXTENDED.keys().isdisjoint(prefixes | {f"{file}::{function}"})


def left_to_nightly(nodeid: str) -> bool:
    """Whether CI leaves the test out when its time is over: no unit, main path or simulation."""
    return is_extended(nodeid) and not nodeid.startswith(("tests/unit/", "tests/simulation/"))


def order(nodeid: str, cluster: str) -> tuple[int, str]:
    """Where several workers run a file: earlier by a lower key.

    What CI may leave to `make nightly` comes last: when its time is over, all else has run. Of that, files that share
    an expensive cluster come first, since a long one at the end leaves all workers but one idle. *cluster* names the
    one that the file's first test on brokers shares: such files run side by side.
    """
    if left_to_nightly(nodeid):
        return (3 if nodeid.partition("::")[0] in SHARING else 4 if cluster else 5), cluster
    return (0 if cluster else 2 if nodeid.startswith("tests/unit/") else 1), cluster


def together(nodeid: str) -> str:
    """What runs in one worker: a file, or the files that share expensive clusters."""
    file = nodeid.partition("::")[0]
    return SHARING.get(file, file)
