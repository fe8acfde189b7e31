"""The books of a simulated run: what they say must be true, or an invariant cries for nothing, or sleeps."""
from __future__ import annotations

from pyclient.testing.simulation.facts import Entry, Facts, Log

WHERE = ("orders", 0)


def entries(names: str, epoch: int, *, begin: int = 0) -> Log:
    return {begin + at: Entry(name.encode(), epoch) for at, name in enumerate(names)}


def read(facts: Facts, offset: int, entry: Entry) -> None:
    facts.read(facts.handed("reader", WHERE, offset, entry))


def all_read(names: str) -> Facts:
    """A log of epoch 0, and a reader who has read it from its beginning to its end."""
    facts = Facts()
    facts.append(WHERE, 0, [b"%c" % name for name in names.encode()], 0)
    facts.readings["reader", WHERE].begin(0, 0)
    for offset, entry in entries(names, 0).items():
        read(facts, offset, entry)
    return facts


def points(facts: Facts) -> list[tuple[int, int | None]]:
    """Where the reader may go on, in which of the logs."""
    return [(number, at) for number, _, at in facts.logs(facts.readings["reader", WHERE], WHERE)]


def ten_of_which_retention_took_five() -> Facts:
    facts = Facts()
    facts.append(WHERE, 0, [name.encode() for name in "abcdefghca"], 0)
    facts.begin(WHERE, 5)
    return facts


def test_a_copy_that_retention_took_does_not_stand_for_the_one_that_an_election_took() -> None:
    facts = ten_of_which_retention_took_five()
    facts.lead(WHERE, entries("ab", 0), start=0, clean=False)
    assert facts.lost == {b"%c" % name for name in b"cdefgh"}


def test_the_log_begins_where_the_one_of_an_unclean_leader_begins() -> None:
    facts = ten_of_which_retention_took_five()
    facts.lead(WHERE, entries("abc", 0), start=2, clean=False)
    assert facts.log_start[WHERE] == 2


def test_a_clean_leader_may_begin_later_and_what_retention_took_from_it_is_not_lost() -> None:
    facts = ten_of_which_retention_took_five()
    facts.lead(WHERE, entries("abcdefgh", 0), start=0, clean=False)
    facts.lead(WHERE, entries("fgh", 0, begin=5), start=5, clean=True)
    assert (facts.log_start[WHERE], [*facts.stored[WHERE]], facts.lost) == (5, [*range(8)], set())


def test_to_where_retention_once_moved_readers_is_remembered() -> None:
    facts = ten_of_which_retention_took_five()
    facts.lead(WHERE, entries("abcdefgh", 0), start=0, clean=False)
    assert (facts.log_start[WHERE], facts.latest_start[WHERE]) == (0, 5)


def test_retention_may_lead_a_reader_to_each_start_a_log_had() -> None:
    facts = ten_of_which_retention_took_five()
    facts.begin(WHERE, 8)
    facts.lead(WHERE, entries("abcdefgh", 0), start=0, clean=False)
    assert [offset for offset in range(9) if facts.led_by_retention(WHERE, 3, offset)] == [5, 6, 7, 8]
    assert not facts.led_by_retention(WHERE, 8, 9)


def test_a_clean_leader_loses_nothing_and_moves_no_beginning() -> None:
    facts = ten_of_which_retention_took_five()
    facts.lead(WHERE, entries("fghca", 0, begin=5), start=5, clean=True)
    assert (facts.lost, facts.log_start[WHERE], len(facts.stored[WHERE])) == (set(), 5, 10)


def test_a_reader_that_went_back_with_its_log_stands_where_it_went_on() -> None:
    facts = all_read("abcd")
    reading = facts.readings["reader", WHERE]
    facts.moved("reader", WHERE, 4)
    facts.lead(WHERE, {**entries("a", 0), **entries("zyx", 1, begin=1)}, start=0, clean=False)
    read(facts, 1, Entry(b"z", 1))
    assert (reading.next, reading.position) == (2, 1)


def test_a_reader_of_what_lay_beyond_the_newer_logs_end_goes_on_there() -> None:
    facts = Facts()
    facts.append(WHERE, 0, [b"a", b"b", b"c", b"d"], 0)
    reading = facts.readings["reader", WHERE]
    reading.begin(3, 0)
    read(facts, 3, Entry(b"d", 0))
    facts.lead(WHERE, entries("ab", 0), start=0, clean=False)
    assert reading.parts_from(facts.stored[WHERE]) == 2


def test_where_logs_part_below_what_retention_took_they_part_there() -> None:
    facts = ten_of_which_retention_took_five()
    facts.lead(WHERE, entries("abc", 0), start=0, clean=False)
    assert [cut.at for cut in facts.cuts[WHERE]] == [3]


def test_a_reader_in_the_newest_log_was_moved_by_its_retention_only() -> None:
    facts = ten_of_which_retention_took_five()
    reading = facts.readings["reader", WHERE]
    facts.lead(WHERE, entries("abcdefgh", 0), start=0, clean=False)
    assert facts.start_for(reading, WHERE) == 5
    reading.knows = 1
    assert facts.start_for(reading, WHERE) == 0


def test_a_reader_that_retention_has_moved_on_has_read_nothing_there() -> None:
    facts = ten_of_which_retention_took_five()
    reading = facts.readings["reader", WHERE]
    reading.begin(0, 0)
    read(facts, 0, Entry(b"a", 0))
    facts.moved("reader", WHERE, 5)
    facts.lead(WHERE, entries("abc", 0), start=0, clean=False)  # which ends before: its policy puts it wherever it says
    assert (reading.next, reading.view) == (None, {})
    assert facts.logs(reading, WHERE)[-1][2] is None


def test_where_a_log_is_cut_in_what_retention_took_from_a_reader_it_goes_on_at_the_cut() -> None:
    facts = ten_of_which_retention_took_five()
    reading = facts.readings["reader", WHERE]
    reading.begin(0, 0)
    read(facts, 0, Entry(b"a", 0))
    read(facts, 5, Entry(b"f", 0))
    facts.lead(WHERE, entries("abc", 0), start=0, clean=False)
    facts.append(WHERE, 3, [b"x", b"y", b"z"], 1)  # before it learns of it, the log is longer than what it has not read
    assert facts.logs(reading, WHERE)[-1][2] == 3


def test_a_reader_put_beyond_the_end_of_a_log_that_was_cut_goes_on_where_its_policy_says() -> None:
    facts = ten_of_which_retention_took_five()
    reading = facts.readings["reader", WHERE]
    facts.lead(WHERE, entries("abc", 0), start=0, clean=False)
    facts.sought("reader", WHERE, 4)
    assert (reading.next, reading.knows) == (None, 1)
    facts.sought("reader", WHERE, 3)
    assert reading.next == 3


def test_a_reader_that_retention_has_moved_on_still_may_not_stand_before_where_it_stood() -> None:
    facts = ten_of_which_retention_took_five()
    reading = facts.readings["reader", WHERE]
    reading.begin(0, 0)
    read(facts, 0, Entry(b"a", 0))
    facts.moved("reader", WHERE, 1)
    read(facts, 5, Entry(b"f", 0))
    assert reading.position == 1


def test_a_reader_may_have_gone_back_for_a_log_in_between_and_go_on_from_there() -> None:
    facts = all_read("abcdefgh")
    facts.lead(WHERE, {**entries("ab", 0), **entries("xyz", 1, begin=2)}, start=0, clean=False)
    facts.lead(WHERE, entries("abcdefgh", 0), start=0, clean=False)
    assert points(facts) == [(0, 8), (1, 2), (2, 8), (2, 2)]


def test_a_reader_may_not_go_on_where_it_stood_in_a_log_that_was_cut_below() -> None:
    facts = all_read("abcd")
    facts.lead(WHERE, {**entries("abc", 0), **entries("xyz", 1, begin=3)}, start=0, clean=False)
    facts.lead(WHERE, {**entries("a", 0), **entries("xyz", 2, begin=1)}, start=0, clean=False)
    assert points(facts) == [(0, 4), (1, 3), (2, 1)]


def a_log_of_two_epochs(*, then: str) -> Facts:
    """Three records of epoch 0, five of epoch 1; the next leader has others of epoch 0 instead, and *then* its own."""
    facts = Facts()
    facts.append(WHERE, 0, [b"a", b"b", b"c"], 0)
    facts.append(WHERE, 3, [b"d", b"e", b"f", b"g", b"h"], 1)
    facts.resumed("reader", WHERE, 8, 1)
    facts.lead(WHERE, {**entries("abcxyz", 0), **entries(then, 2, begin=6)}, start=0, clean=False)
    return facts


def test_a_reader_that_came_back_cannot_know_where_the_epoch_began_that_it_has_committed() -> None:
    facts = a_log_of_two_epochs(then="uvw")
    assert points(facts) == [(0, 8), (1, 3), (1, 4), (1, 5), (1, 6)]
    read(facts, 6, Entry(b"u", 2))
    reading = facts.readings["reader", WHERE]
    assert (reading.next, reading.knows) == (7, 1)
    assert reading.view == {**entries("abcxyz", 0), 6: Entry(b"u", 2)}


def test_a_reader_that_came_back_and_went_back_knows_no_epoch_and_notices_no_further_cut() -> None:
    facts = a_log_of_two_epochs(then="")
    facts.moved("reader", WHERE, 8)
    facts.moved("reader", WHERE, 6)
    reading = facts.readings["reader", WHERE]
    assert (reading.next, reading.knows, reading.view) == (6, 1, {})
    facts.lead(WHERE, {**entries("a", 0), **entries("rstuvwx", 3, begin=1)}, start=0, clean=False)
    assert points(facts)[-1] == (2, None)


def test_a_reader_of_the_whole_log_knows_where_each_epoch_began() -> None:
    facts = Facts()
    facts.append(WHERE, 0, [b"a", b"b", b"c"], 0)
    facts.append(WHERE, 3, [b"d", b"e"], 1)
    facts.readings["reader", WHERE].begin(0, 0)
    for offset, entry in {**entries("abc", 0), **entries("de", 1, begin=3)}.items():
        read(facts, offset, entry)
    facts.lead(WHERE, entries("abcxyz", 0), start=0, clean=False)
    assert points(facts) == [(0, 5), (1, 3)]


def test_a_reader_that_sought_into_an_epoch_cannot_know_where_it_began() -> None:
    facts = Facts()
    facts.append(WHERE, 0, [b"a", b"b", b"c"], 0)
    facts.append(WHERE, 3, [b"d", b"e", b"f", b"g", b"h"], 1)
    facts.sought("reader", WHERE, 6)
    read(facts, 6, Entry(b"g", 1))
    facts.lead(WHERE, {**entries("abcxy", 0), **entries("uvw", 2, begin=5)}, start=0, clean=False)
    assert points(facts) == [(0, 7), (1, 3), (1, 4), (1, 5)]


def test_a_seek_ahead_ends_where_the_leader_of_now_has_committed() -> None:
    facts = all_read("abcdef")
    facts.watermarks[WHERE] = {0: 5, 1: 3}
    assert facts.committed_end(WHERE) == 3
    facts.watermarks[WHERE][2] = 9
    assert facts.committed_end(WHERE) == 6
    assert Facts().committed_end(WHERE) == 0
