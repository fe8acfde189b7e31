"""The mutants that no bounded number of seeds can be expected to find, each with what fails with it: a unit test, or a
seed of a scenario.

`make proof` applies each and runs that test.
"""
from __future__ import annotations

from typing import Final

import attrs

from pyclient.testing.simulation.sweep import NOT_TAKEN, RARE
from tests.simulation.mutants import row_name

CLASSIC: Final = "tests/unit/core/test_classic_group.py"
CONSUMER: Final = "tests/unit/core/test_consumer_group.py"
REFUSED: Final = f"{CLASSIC}::test_G04_a_member_can_be_lost_or_refused_in_every_state"
REFUSED_WITH_AN_EPOCH: Final = f"{CONSUMER}::test_N02_a_member_can_be_fenced_or_refused_in_every_state_with_an_epoch"
LEAVES: Final = f"{CONSUMER}::test_N02_a_member_can_leave_in_every_state"
CONNECTIONS: Final = "tests/unit/core/test_connection_table.py::test_the_table_has_no_other_row"
TRANSACTING: Final = "tests/unit/core/test_transactions.py"
SENDING: Final = "tests/unit/core/test_sender_transactional.py"
SCENARIOS: Final = "tests/simulation/test_scenarios.py"
LAGS: Final = f"{SCENARIOS}::test_C09_a_follower_that_has_less_than_its_readers_ask_for_is_no_truncated_log"
CUT_BACK: Final = f"{SCENARIOS}::test_C11_what_a_follower_has_lost_to_a_new_leader_and_its_readers_have_not_read_is_no_truncation_to_them"
REPLICAS: Final = "tests/unit/core/test_fetcher_replicas.py"
POOL: Final = "tests/unit/net/test_pool.py"
UNKNOWN_MEMBER, FENCED_INSTANCE, FENCED_EPOCH, BAD_PATTERN = 25, 82, 110, 128


@attrs.frozen
class Exempt:
    """Why no seed has to find a mutant, and the test that does."""

    reason: str
    test: str


_OF_ROWS: Final = {
    ("classic member", "ASSIGNING", "REJOIN"): f"{CLASSIC}::test_an_assignors_error_is_reported_and_the_member_joins_again_after_a_pause",
    ("classic member", "OUT", "LEFT"): "tests/unit/core/test_membership.py::test_a_consumer_that_never_joined_leaves_without_a_request[ClassicHarness]",
    **{("classic member", state, "LOST"): f"{REFUSED}[State.{state}-{UNKNOWN_MEMBER}]" for state in ("JOINING", "ASSIGNING", "TAKING_OVER")},
    **{("classic member", state, "REFUSED"): f"{REFUSED}[State.{state}-{FENCED_INSTANCE}]"
       for state in ("REVOKING", "JOINING", "ASSIGNING", "SYNCING", "TAKING_OVER", "STABLE")},
    **{("classic member", state, "LEFT"): f"{CLASSIC}::test_G05_a_member_can_leave_in_every_state[State.{state}]" for state in ("ASSIGNING", "SYNCING")},
    **{("consumer member", state, "REFUSED"): f"{REFUSED_WITH_AN_EPOCH}[State.{state}-{BAD_PATTERN}]" for state in ("ACKNOWLEDGING", "RECONCILING", "LISTENER_FAILED")},
    **{("consumer member", state, "LOST"): f"{REFUSED_WITH_AN_EPOCH}[State.{state}-{FENCED_EPOCH}]" for state in ("LISTENER_FAILED", "ACKNOWLEDGING")},
    **{("consumer member", state, "LEFT"): f"{LEAVES}[State.{state}]" for state in ("OUT", "JOINING", "ACKNOWLEDGING", "LISTENER_FAILED")},
    ("sequence", "DRAINING", "STORED"): "tests/unit/core/test_sender_idempotent.py"
        "::test_I05_a_batch_that_is_stored_behind_a_gap_counts_and_a_new_epoch_starts_all_the_same",
    ("transaction", "READY", "INITIALIZE"): f"{TRANSACTING}::test_another_transactional_id_may_follow_while_no_transaction_is_open",
    ("transaction", "IN_TRANSACTION", "SEND_OFFSETS"): f"{TRANSACTING}::test_T04_offsets_carry_the_members_identity",
    ("transaction", "INITIALIZING", "REFUSED"): f"{TRANSACTING}::test_a_refused_id_may_be_asked_for_again",
    **{("transaction", state, "FATAL"): f"{TRANSACTING}::test_a_fatal_error_is_possible_in_every_state[TransactionState.{state}]"
       for state in ("UNINITIALIZED", "READY", "ABORTABLE_ERROR")},
    **{("connection", state, event): CONNECTIONS for state, event in (("CONNECTING", "LOST"), ("REAUTHENTICATING", "RETIRED"), ("DRAINING", "LOST"))},
}

_SLOWER: Final = "the call takes longer, and nothing but its time limit says how long it may take"
_OF_BUGS: Final = {
    "what is buffered and not read counts as read when the log was cut": Exempt(
        "the log has to be cut in the middle of what is buffered, while a fetch is under way", f"{CUT_BACK}[3]"),
    "an offset out of a follower's range is reset": Exempt(
        "a seek without an epoch has to go beyond the end of a follower that is read", f"{LAGS}[1]"),
    "a leader that is to decide hears the rack, and names the follower again": Exempt(
        "a follower has to be in sync with a log that was cut, under a reader who has not noticed", f"{CUT_BACK}[1]"),
    "fetches from followers name no epoch": Exempt("as above", f"{CUT_BACK}[1]"),
    "the epochs of what was read are forgotten with a change of the replica": Exempt("as above", f"{CUT_BACK}[1]"),
    "a follower is read on after an error": Exempt(
        "the error passes, or the lease ends", f"{REPLICAS}::test_C09_any_error_of_a_follower_ends_the_lease_and_the_leader_is_fetched_from_after_a_pause[6]"),
    "a follower is read on after its lease": Exempt(
        "it has the same records", f"{REPLICAS}::test_C09_after_the_lease_fetches_go_to_the_leader_again"),
    "a follower is read on under another leader": Exempt(
        "most followers have been cut back by the time they know the new epoch", f"{REPLICAS}::test_C09_a_new_leader_ends_the_lease"),
    "the loop does not notice that a worker has sealed a batch": Exempt(
        "the next timer finds the batch within seconds, long before it is overdue",
        "tests/unit/producer/test_compression_by_topic.py::test_a_worker_that_has_compressed_a_batch_wakes_the_loop"),
    "a failed heartbeat is sent again at once": Exempt(
        "a node that fails is not ready, so few heartbeats fail twice in a row",
        f"{CONSUMER}::test_N03_the_heartbeat_after_an_error_states_everything"),
    "a commit stores positions of partitions that went and came back": Exempt(
        "the partition has to go and come back between a position and its commit",
        "tests/unit/core/test_member_commit.py::test_C24_a_commit_of_a_partition_that_was_revoked_and_assigned_again_fails"),
    "requests stay with a coordinator that was replaced": Exempt(
        _SLOWER, f"{POOL}::test_a_node_that_does_not_answer_in_time_is_reported_each_turn_until_it_does"),
    "a call waits for any node as long as for one": Exempt(
        _SLOWER, "tests/unit/core/test_silence.py::test_the_timeout_of_silence_is_short_doubles_with_each_failure_and_ends_at_the_request_timeout"),
    "a silent node is chosen like another": Exempt(
        _SLOWER, f"{POOL}::test_a_silent_node_is_not_asked_while_others_can_be_and_is_when_all_are_silent"),
    "an aborting producer sends what has not left": Exempt(
        "it is aborted all the same", f"{SENDING}::test_T03_an_abort_sends_nothing_that_has_not_left"),
    "a commit waits until the linger is over": Exempt(_SLOWER, f"{SENDING}::test_a_commit_does_not_wait_until_the_linger_is_over"),
    "a commit does not wait for its offsets": Exempt(
        "the loop waits for them before", f"{TRANSACTING}::test_T01_one_request_is_in_flight_partitions_before_offsets_before_the_end"),
    "offsets are done before they are answered": Exempt(
        "the commit waits for them, too", f"{TRANSACTING}::test_T09_an_outdated_member_cannot_commit_its_offsets"),
    "another producer id in the answer to EndTxn is ignored": Exempt(
        "it comes after 32,767 transactions", f"{TRANSACTING}::test_T05_the_end_may_give_another_producer_id"),
    "a producer that is fenced at the end goes on": Exempt(
        "its next request is refused as well", f"{TRANSACTING}::test_a_producer_that_learns_at_the_end_that_it_is_fenced_stops_for_good"),
    "a coordinator that moved is not looked up": Exempt(
        "a coordinator that is asked for long is looked up all the same", f"{TRANSACTING}::test_a_coordinator_that_moved_is_looked_up_again"),
    "a failure in protocol V1 is followed by no new epoch": Exempt(
        "a broker has to lack a batch, or get one late, and the same worker has to write there again",
        f"{TRANSACTING}::test_after_a_failure_in_protocol_V1_the_next_transaction_has_a_new_epoch"),
    "the end does not wait for batches that have to be sent again": Exempt(
        "a commit has to come within a back-off", f"{SENDING}::test_T01_the_end_waits_for_a_batch_that_has_to_be_sent_again"),
    "the end does not wait for requests of batches whose time is over": Exempt(
        "such a request has to be carried out late", f"{SENDING}::test_T03_an_abort_waits_for_the_request_of_a_batch_whose_time_is_over"),
    "an abort fails what brokers may have": Exempt(
        "an abort has to come within a back-off", f"{SENDING}::test_T01_the_end_waits_for_a_batch_that_has_to_be_sent_again"),
    "a partition that sat out a transaction goes on with its sequences": Exempt(
        "workers write to both partitions most of the time", f"{SENDING}::test_T05_a_partition_that_sat_out_a_transaction_begins_with_sequence_0"),
}

EXEMPT: Final = {
    **{row_name(*row): Exempt(reason, _OF_ROWS[row]) for row, reason in {**NOT_TAKEN, **RARE}.items()},
    **_OF_BUGS,
}
"""By the mutant's name."""
