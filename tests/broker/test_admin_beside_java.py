"""Java's Admin and ours are asked the same of a real broker, and answer the same; changes by both leave the same."""
from __future__ import annotations

import contextlib
import functools
import subprocess
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pyclient import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from pyclient.admin import (
    Acl, AclFilter, AclOperation, AclPattern, AclPermission, ConfigChange, ConfigResource, DelegationToken, OffsetSpec, QuotaEntity, QuotaName, ScramMechanism,
    ScramPassword,
)
from pyclient.errors import KafkaError
from pyclient.testing import LocalCluster, Security
from pyclient.testing.jvm import prepare_jvm
from tests.kafka import make_topic
from tests.secured_clients import reaching
from tests.waiting import eventually

SECURITY: Final = Security()
PROGRAM: Final = Path(__file__).parents[1] / "data" / "java"
FOR_JAVA_8: Final = "-Dorg.codehaus.janino.UnitCompiler.defaultTargetVersion=8"
"""Janino, which is part of Spark, compiles the program: not every Java has a compiler."""
BOTH_PROTOCOLS: Final = {"group.coordinator.rebalance.protocols": "classic,consumer"}
"""Kafka 3.9 has KIP-848's groups only when asked for."""

Facts = Iterable[tuple[object, ...]]


class Scene(NamedTuple):
    """What both are asked about, and Java's answers by question."""

    base: str
    admin: Admin
    user: dict[str, Any]
    ask_java: Callable[..., dict[str, list[str]]]
    java: dict[str, list[str]]

    def at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.base, partition)


@pytest.fixture(scope="module", params=[
    pytest.param(("4.3.1", 1), id="4.3.1"), pytest.param(("3.9.1", 3), id="3.9.1 on three", marks=pytest.mark.proof),
    pytest.param(("3.9.1", 1), id="3.9.1", marks=pytest.mark.proof), pytest.param(("4.3.1", 3), id="4.3.1 on three", marks=pytest.mark.proof)])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    version, brokers = request.param
    with LocalCluster(brokers, security=SECURITY, version=version, startup_timeout=240, config=BOTH_PROTOCOLS if version == "3.9.1" else {}) as made:
        yield made


@pytest.fixture(scope="module")
def scene(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Topics, groups with members, an open transaction, ACLs, users, quotas and a token; then Java is asked once."""
    base = f"beside-{uuid.uuid4().hex[:8]}"
    password = cluster.credentials.users["bob"].password
    user = reaching(cluster, "SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", sasl_plain_username="bob", sasl_plain_password=password)
    with contextlib.ExitStack() as ends:
        admin = ends.enter_context(Admin(bootstrap_servers=cluster.bootstrap_servers))
        prepare(cluster, admin, base)
        hold_members_and_a_transaction(cluster, admin, base, ends)
        token = create_token(user)
        logs = tmp_path_factory.mktemp("java")
        ask_java = functools.partial(answers, cluster, logs, cluster.bootstrap("SASL_PLAINTEXT"), "bob", password, base)
        yield Scene(base, admin, user, ask_java, ask_java("and change"))
        expire(user, token)


def prepare(cluster: LocalCluster, admin: Admin, base: str) -> None:
    """What stays when its client has ended."""
    make_topic(cluster, base, 3, len(cluster.nodes), cleanup_policy="delete", retention_ms="-1")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition in range(3):
            for time in (1000, 3000, 2000):
                producer.send(base, b"x", partition=partition, timestamp=time)
    admin.alter_group_offsets(f"{base}-empty", {TopicPartition(base, 0): OffsetAndMetadata(2, "noted", 0), TopicPartition(base, 2): 0})
    about = (base, "User:anna", AclOperation.READ)
    admin.create_acls([Acl.topic(*about), Acl.group(*about, AclPermission.DENY, "10.0.0.1", AclPattern.PREFIXED), Acl.transactional_id(*about)])
    admin.alter_scram_users({base: [ScramPassword("a", ScramMechanism.SHA_256, 4096), ScramPassword("a")]})
    admin.alter_quotas({
        QuotaEntity(user=base, client_id=QuotaName.DEFAULT): {"request_percentage": 150.5}, QuotaEntity(ip="10.0.0.3"): {"connection_creation_rate": 7}})
    eventually(lambda: len(admin.describe_acls(AclFilter(resource_name=base))) == 3)
    eventually(lambda: base in admin.describe_scram_users())
    eventually(lambda: len(admin.describe_quotas()) >= 2)


def hold_members_and_a_transaction(cluster: LocalCluster, admin: Admin, base: str, ends: contextlib.ExitStack) -> None:
    """A member of a classic group, one of a group of KIP-848, and an open transaction, until *ends* closes."""
    classic = Consumer(topics=[base], group_id=f"{base}-classic", group_instance_id="first", client_id="a-classic-one", bootstrap_servers=cluster.bootstrap_servers)
    by_broker = Consumer(topics=[base], group_id=f"{base}-consumer", group_protocol="consumer", client_id="another", bootstrap_servers=cluster.bootstrap_servers)
    for member in (classic, by_broker):
        ends.enter_context(member)
        assigned(member)
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"{base}-tx", transaction_timeout_ms=300_000)
    ends.callback(producer.close)
    ends.callback(producer.abort_transaction)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(base, b"open", partition=0).result(30)
    eventually(lambda: all(each.state == "Stable" for each in admin.describe_groups([f"{base}-classic", f"{base}-consumer"]).values()), 60)


def assigned(member: Consumer) -> None:
    """Poll until it has all partitions."""
    def has_all() -> bool:
        member.poll(0.2)
        return len(member.assignment()) == 3

    eventually(has_all, 60)


def create_token(user: dict[str, Any]) -> DelegationToken:
    with Admin(**user) as admin:
        token = admin.create_delegation_token(renewers=["User:alice"])
        eventually(lambda: token in admin.describe_delegation_tokens())
    return token


def expire(user: dict[str, Any], token: DelegationToken) -> None:
    with Admin(**user) as admin:
        admin.expire_delegation_token(token)


def answers(cluster: LocalCluster, logs: Path, *arguments: str) -> dict[str, list[str]]:
    """What the program prints, by question."""
    import pyspark

    jvm, jars = prepare_jvm(), Path(pyspark.__file__).parent / "jars"
    compiler = [str(path) for name in ("janino", "commons-compiler") for path in jars.glob(f"{name}-*.jar")]
    command = jvm._replace(archived=False).command(
        "org.codehaus.janino.JavaSourceClassLoader", "-sourcepath", str(PROGRAM), "AdminAnswers", cluster.bootstrap_servers, *arguments, logs=logs,
        flags=[FOR_JAVA_8])
    environment = jvm.environment()
    environment["CLASSPATH"] = ":".join([environment["CLASSPATH"], *compiler])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[str]] = defaultdict(list)
    for line in done.stdout.splitlines():
        question, _, facts = line.partition("\t")
        found[question].append(facts)
    return found


def sorted_names(partitions: Iterable[TopicPartition] | None) -> str | None:
    return None if partitions is None else ",".join(sorted(map(str, partitions)))


def listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def topics(scene: Scene) -> Facts:
    return ((name,) for name in scene.admin.list_topics() if name != f"{scene.base}-java")


def topic(scene: Scene) -> Facts:
    found = scene.admin.describe_topics([scene.base])[scene.base]
    assert found.topic_id is not None
    yield found.name, found.topic_id.hex, str(found.internal).lower()
    for each in found.partitions:
        yield each.partition, each.leader, listed(each.replicas), listed(each.isr)


def configs(resource: ConfigResource) -> Callable[[Scene], Facts]:
    def ask(scene: Scene) -> Facts:
        asked = ConfigResource.topic(scene.base) if resource.name == "" else resource
        for name, each in scene.admin.describe_configs([asked], synonyms=True, documentation=True)[asked].items():
            synonyms = "".join(f"{other.name}={other.value}:{other.source.name};" for other in each.synonyms)
            yield (name, each.value, each.source.name, each.type.name, str(each.read_only).lower(), str(each.sensitive).lower(),
                   str(each.is_default).lower(), synonyms, len((each.documentation or "").encode("utf-16-le")) // 2)
    return ask


def offsets(scene: Scene) -> Facts:
    for number, spec in enumerate((OffsetSpec.LATEST, OffsetSpec.EARLIEST, OffsetSpec.MAX_TIMESTAMP, OffsetSpec.EARLIEST_LOCAL, 1500)):
        for partition in (0, 1):
            found = scene.admin.list_offsets({scene.at(partition): spec})[scene.at(partition)]
            yield number, partition, found and found.offset, found and found.timestamp


def groups(scene: Scene) -> Facts:
    return ((each.group_id, each.protocol_type, each.state, each.type) for each in scene.admin.list_groups()
            if each.group_id.startswith(scene.base) and each.group_id != f"{scene.base}-java")


def described_groups(scene: Scene) -> Facts:
    for each in scene.admin.describe_groups([f"{scene.base}-{kind}" for kind in ("classic", "consumer", "empty")]).values():
        yield each.group_id, each.type, each.state, each.assignor, each.epoch, each.coordinator
        for member in each.members:
            yield (each.group_id, member.member_id, member.group_instance_id, member.client_id, member.host, sorted_names(member.assignment),
                   sorted_names(member.target))


def group_offsets(scene: Scene) -> Facts:
    for tp, found in scene.admin.group_offsets(f"{scene.base}-empty").items():
        assert found.committed is not None
        yield tp, found.committed.offset, found.committed.metadata, found.committed.leader_epoch


def transactions(scene: Scene) -> Facts:
    return ((each.transactional_id, each.producer_id, each.state) for each in scene.admin.list_transactions() if each.transactional_id.startswith(scene.base))


def transaction(scene: Scene) -> Facts:
    found, = scene.admin.describe_transactions([f"{scene.base}-tx"]).values()
    yield found.state, found.producer_id, found.producer_epoch, int(found.timeout * 1000), found.started_at, sorted_names(found.partitions)


def producers(scene: Scene) -> Facts:
    for each in scene.admin.describe_producers([scene.at(0)])[scene.at(0)]:
        yield each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp, each.transaction_start_offset


def acls(scene: Scene) -> Facts:
    for each in scene.admin.describe_acls():
        if each.resource_name == scene.base:
            yield (each.resource_type.name, each.resource_name, each.pattern.name, each.principal, each.host, each.operation.name, each.permission.name)


def scram_users(scene: Scene) -> Facts:
    return ((name, each.mechanism.name, each.iterations) for name, those in scene.admin.describe_scram_users().items() for each in those
            if name != f"{scene.base}-java")


def quotas(scene: Scene) -> Facts:
    for entity, values in scene.admin.describe_quotas().items():
        for name, value in values.items():
            if entity.client_id != f"{scene.base}-java":
                yield (*("DEFAULT" if each is QuotaName.DEFAULT else each for each in entity), name, float(value))


def cluster_facts(scene: Scene) -> Facts:
    found = scene.admin.describe_cluster()
    yield (found.cluster_id,)
    for node in found.nodes:
        yield node.id, node.host, node.port, node.rack


def features(scene: Scene) -> Facts:
    return ((name, *levels) for name, levels in scene.admin.describe_features().items())


def quorum(scene: Scene) -> Facts:
    found = scene.admin.describe_quorum()
    yield found.leader, found.leader_epoch
    for kind, those in (("voter", found.voters), ("observer", found.observers)):
        for each in those:
            yield kind, each.node_id


def reassignments(scene: Scene) -> Facts:
    yield (len(scene.admin.list_partition_reassignments()),)


def log_dirs(scene: Scene) -> Facts:
    for path, directory in scene.admin.describe_log_dirs([1])[1].items():
        yield path, directory.error, directory.total_bytes
        for tp, each in directory.replicas.items():
            if tp.topic == scene.base:
                yield tp, each.size, each.lag, str(each.is_future).lower()


def election(scene: Scene) -> Facts:
    for tp, elected in scene.admin.elect_leaders([scene.at(0)]).items():
        yield tp, str(elected).lower()


def tokens(scene: Scene) -> Facts:
    with Admin(**scene.user) as admin:
        for each in admin.describe_delegation_tokens():
            yield (each.token_id, each.owner, each.requester, ",".join(each.renewers), each.issued_ms, each.expires_ms, each.max_ms, each.password)


def refusals(scene: Scene) -> Facts:
    base, admin = scene.base, scene.admin
    tries: dict[str, Callable[[], object]] = {
        "topic exists": lambda: admin.create_topics([NewTopic(base, 1, 1)]),
        "topic name": lambda: admin.create_topics([NewTopic("a/b", 1, 1)]),
        "replication factor": lambda: admin.create_topics([NewTopic(f"{base}-large", 1, 7)]),
        "topic config": lambda: admin.create_topics([NewTopic(f"{base}-c", 1, 1, {"retention.ms": "soon"})]),
        "unknown topic": lambda: admin.describe_topics([f"{base}-none"]),
        "delete unknown topic": lambda: admin.delete_topics([f"{base}-none"]),
        "fewer partitions": lambda: admin.create_partitions({base: 1}),
        "config value": lambda: admin.alter_configs({ConfigResource.topic(base): {"retention.ms": "soon"}}),
        "records beyond the end": lambda: admin.delete_records({scene.at(0): 99}),
        "delete unknown group": lambda: admin.delete_groups([f"{base}-none"]),
        "delete used group": lambda: admin.delete_groups([f"{base}-classic"]),
        "unknown transaction": lambda: admin.describe_transactions([f"{base}-none"]),
        "move to unknown broker": lambda: admin.alter_partition_reassignments({scene.at(0): [99]}),
        "cancel no move": lambda: admin.alter_partition_reassignments({scene.at(0): None}),
        "token without login": admin.create_delegation_token,
    }
    for what, attempt in tries.items():
        try:
            attempt()
        except KafkaError as error:
            yield what, error.name
        else:
            yield what, None


QUESTIONS: Final[dict[str, Callable[[Scene], Facts]]] = {
    "list_topics": topics, "describe_topics": topic, "describe_configs TOPIC": configs(ConfigResource.topic("")),
    "describe_configs BROKER": configs(ConfigResource.broker(1)), "list_offsets": offsets, "list_groups": groups, "describe_groups": described_groups,
    "group_offsets": group_offsets, "list_transactions": transactions, "describe_transactions": transaction, "describe_producers": producers,
    "describe_acls": acls, "describe_scram_users": scram_users, "describe_quotas": quotas, "describe_cluster": cluster_facts, "describe_features": features,
    "describe_quorum": quorum, "list_partition_reassignments": reassignments, "describe_log_dirs": log_dirs, "elect_leaders": election,
    "describe_delegation_tokens": tokens, "refusals": refusals,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_both_answer_the_same(scene: Scene, question: str) -> None:
    def ours() -> list[str]:
        return sorted("\t".join(map(str, facts)) for facts in QUESTIONS[question](scene))

    if ours() != sorted(scene.java[question]):  # a leader or the controller may have moved since Java was asked
        again = scene.ask_java()
        assert ours() == sorted(again[question])


def test_changes_by_both_leave_the_same(scene: Scene) -> None:
    """Java made its own before the first question; partition 2 has lost its first record by it."""
    admin, mine, javas = scene.admin, f"{scene.base}-mine-{uuid.uuid4().hex[:8]}", f"{scene.base}-java"
    admin.create_topics([NewTopic(mine, 2, 1, {"retention.ms": "3600000"})])
    admin.create_partitions({mine: 3})
    admin.alter_configs({ConfigResource.topic(mine): {
        "segment.ms": 60000, "cleanup.policy": ConfigChange.append("compact"), "retention.ms": ConfigChange.delete()}})
    admin.alter_group_offsets(mine, {TopicPartition(mine, 1): OffsetAndMetadata(7, "by hand")})
    admin.create_acls([Acl.topic(mine, "User:zoe", AclOperation.ALTER_CONFIGS, AclPermission.DENY, "10.0.0.2", AclPattern.PREFIXED)])
    admin.alter_quotas({QuotaEntity(client_id=mine): {"consumer_byte_rate": 12345}})
    admin.alter_scram_users({mine: ScramPassword("secret", ScramMechanism.SHA_256, 5000)})

    def state(name: str) -> list[object]:
        resource = ConfigResource.topic(name)
        return [
            [(each.partition, len(each.replicas), each.leader in each.replicas) for each in admin.describe_topics([name])[name].partitions],
            {key: (each.value, each.source) for key, each in admin.describe_configs([resource])[resource].items()},
            {tp.partition: each.committed for tp, each in admin.group_offsets(name, lag=False).items()},
            [each._replace(resource_name="") for each in admin.describe_acls(AclFilter(resource_name=name))],
            list(admin.describe_quotas(QuotaEntity(client_id=name)).values()),
            admin.describe_scram_users().get(name),
        ]

    assert all(state(javas))
    eventually(lambda: state(mine) == state(javas))
    assert scene.java["delete_records"] == [str(admin.delete_records({scene.at(2): 1})[scene.at(2)])]
