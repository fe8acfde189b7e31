"""What users give wrongly to Admin's calls is named at once, with what to write; nothing is sent."""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pyclient import AsyncAdmin, TopicPartition
from pyclient.admin import given
from pyclient.admin import Acl, AclOperation, QuotaEntity, ReassignmentPlan, ScramDeletion, ScramMechanism

TP = TopicPartition("orders", 0)
ACL = Acl.topic("orders", "User:bob", AclOperation.READ)
ANNA = QuotaEntity(user="anna")
GONE = ScramDeletion(ScramMechanism.SHA_512)
WRONG: dict[str, tuple[Callable[[Any], Awaitable[object]], str]] = {
    "one partition": (lambda admin: admin.delete_group_offsets("g", TP), r"expected a list of partitions, got one: write \[TopicPartition"),
    "a topic for a partition": (lambda admin: admin.group_offsets("g", ["orders"]), r"""as \[TopicPartition\("orders", 0\)\], got 'orders'"""),
    "a producer's topic": (lambda admin: admin.describe_producers([TP, "orders"]), "got 'orders'"),
    "a list of offsets": (lambda admin: admin.alter_group_offsets("g", [TP]), "expected a dict by partition, as .* 5000}, got list"),
    "offsets by topic": (lambda admin: admin.alter_group_offsets("g", {"orders": 0}), "expected a dict by partition"),
    "one member": (lambda admin: admin.remove_members("g", "belt-1"), r"write \['belt-1'\]"),
    "one broker": (lambda admin: admin.plan_without_brokers(1), r"brokers is 1: write \[1\]"),
    "a broker as text": (lambda admin: admin.alter_partition_reassignments({TP: ["1"]}), r"the list of orders-0 has '1': expected node ids"),
    "one broker of a partition": (lambda admin: admin.alter_partition_reassignments({TP: 1}), r"the list of orders-0 is 1: write \[1\]"),
    "one topic": (lambda admin: admin.plan_even_replicas("orders"), r"topics is the str 'orders': write \['orders'\]"),
    "a plan for a limit": (lambda admin: admin.throttle_replication(ReassignmentPlan({}, {})), "expected a ReplicationThrottle, which plan_throttle makes"),
    "no limit": (lambda admin: admin.end_throttle(None), "got NoneType"),
    "a group's state": (lambda admin: admin.list_groups(states=["Sleeping"]), "states has 'Sleeping': expected some of PreparingRebalance, "),
    "a group's type": (lambda admin: admin.list_groups(types=["new"]), "types has 'new': expected some of classic, consumer"),
    "one ACL": (lambda admin: admin.create_acls(ACL), r"expected a list of ACLs, got one: write \["),
    "users as text": (lambda admin: admin.describe_scram_users("anna"), r"users is the str 'anna': write \['anna'\]"),
    "a user's number": (lambda admin: admin.describe_scram_users([5]), "users has 5: expected str"),
    "a number's password": (lambda admin: admin.alter_scram_users({5: GONE}), "users has 5: expected str"),
    "a list of passwords": (lambda admin: admin.alter_scram_users([GONE]), 'changes are of type list: expected a dict, as {"anna": ScramPassword'),
    "a list of quotas": (lambda admin: admin.alter_quotas([ANNA]), "changes are of type list: expected a dict, as {QuotaEntity"),
    "an entity's rate": (lambda admin: admin.alter_quotas({ANNA: 5}), "the quotas of .*anna.* are of type int: expected a dict"),
    "a rate as text": (lambda admin: admin.alter_quotas({ANNA: {"producer_byte_rate": "5"}}), "producer_byte_rate of .*anna.* is '5': expected a number"),
    "one renewer": (lambda admin: admin.create_delegation_token(renewers="User:bob"), r"renewers is the str 'User:bob': write \['User:bob'\]"),
    "one owner": (lambda admin: admin.describe_delegation_tokens("User:bob"), r"owners is the str 'User:bob': write \['User:bob'\]"),
    "a list of factors": (lambda admin: admin.plan_replication_factors(["orders"]), 'factors are of type list: expected a dict, as {"orders": 3}'),
    "replicas for a plan": (lambda admin: admin.plan_throttle({TP: [1]}, 5), "expected a ReassignmentPlan, as plan_even_replicas makes, got dict"),
    "a reason's number": (lambda admin: admin.remove_members("g", ["belt-1"], reason=5), "reason is 5: expected str"),
    "one transactional id": (lambda admin: admin.fence_producers("loans"), r"transactional_ids is the str 'loans': write \['loans'\]"),
    "a producer id as text": (lambda admin: admin.list_transactions(producer_ids=["5"]), "producer_ids has '5': expected int"),
    "a time as text": (lambda admin: admin.list_transactions(running_longer_than="5 s"), "running_longer_than='5 s': expected a number of seconds"),
    "a transaction's state": (lambda admin: admin.list_transactions(states=["open"]), "states has 'open': expected some of Empty, Ongoing"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_given_wrongly_is_named_before_anything_is_sent(what: str) -> None:
    call, said = WRONG[what]

    async def main() -> None:
        async with AsyncAdmin(bootstrap_servers="localhost:1") as admin:
            await call(admin)

    with pytest.raises((TypeError, ValueError), match=said):
        asyncio.run(main())


@pytest.mark.parametrize(("reads", "each"), [
    (given.partitions, TP), (given.brokers, 4), (lambda those: given.numbers(those, "numbers"), 4), (lambda those: given.names(those, "topics"), "orders"),
    (lambda those: given.known(those, "states", ["Empty"]), "Empty")], ids=["partitions", "brokers", "numbers", "names", "known"])
def test_what_can_be_iterated_once_is_all_there(reads: Callable[[object], list[object]], each: object) -> None:
    assert reads(one for one in [each]) == [each]
