"""The deliberate bugs of groups: what members, leaders, commits and the user's thread may get wrong."""
from __future__ import annotations

from typing import Final

from pyclient.testing.simulation.invariants import GROUPS
from tests.simulation.mutation import Edit, Mutant

MEMBER: Final = "pyclient.core.group.member:Member"
CLASSIC: Final = "pyclient.core.group.classic:ClassicGroup"
CHANGES: Final = "pyclient.core.group.changes:Changes"
LEADING: Final = "pyclient.core.group.leader:GroupLeader"
COMMIT: Final = "pyclient.core.group.member_commit:MemberCommit"
COMMITTING: Final = "pyclient.consumer.commits:Commits"
REBALANCING: Final = "pyclient.consumer.rebalance:Rebalancing"
CORE: Final = "pyclient.consumer.core:ConsumerCore"
PROGRESS: Final = "pyclient.consumer.consumed_positions:ConsumedPositions"
FETCHER: Final = "pyclient.core.fetching.fetcher:Fetcher"
CONSUMER: Final = "pyclient.consumer.facade:AsyncConsumer"
CALLS: Final = "pyclient.core.group.classic_calls"
NEXT: Final = "pyclient.core.group.consumer:ConsumerGroup"
RECONCILING: Final = "pyclient.core.group.reconciliation:Reconciliation"


def _bug(name: str, source: str, target: str, old: str, new: str, survives: str = "") -> Mutant:
    return Mutant(name, "groups", source, (Edit(target, old, new),), survives, GROUPS)


BUGS_OF_GROUPS: Final = (
    # --- being a member
    _bug("an eager member keeps what it has while it joins", "G06", f"{CLASSIC}._rejoin",
         "if self._strategies.cooperative else frozenset[str]()", "if True else frozenset[str]()"),
    _bug("a cooperative member does not join again after it gave partitions up", "G06", f"{CLASSIC}._take_over",
         'self._join_again("partitions were given up that others wait for")', "pass"),
    _bug("a member that is not known any more keeps its generation", "G03", f"{CLASSIC}._on_pulse",
         "self._lose(Identity(), error)", "pass"),
    _bug("a heartbeat that tells of a rebalance is not heard", "G01", f"{CLASSIC}._felt", "self._rebalancing()", "pass"),
    _bug("heartbeats stop when the user's thread gives partitions up", "G01", f"{CLASSIC}._beats", "self.state in BEATING", "self.state.name == 'STABLE'",
         "it is put out of the group and joins again, as it might for a fault: the unit tests see the heartbeats"),
    _bug("no heartbeats", "G01", f"{CLASSIC}.poll", "if self._beats:", "if False:"),
    _bug("an answer to a heartbeat of an older generation counts", "G02", f"{CLASSIC}._felt",
         "sent_as != self.identity or", "", "calls of older generations are cancelled: nothing is answered"),
    _bug("who does not poll stays", "G04", f"{MEMBER}._away", "return away_at is not None and", "return away_at is not None and False and"),
    _bug("a poll that waits counts as silence", "G04", f"{MEMBER}._away", "away_at = self._away_at", "away_at = self.polled_at + self._options.rebalance_timeout"),
    _bug("who comes back has lost nothing", "G04", f"{CLASSIC}.polled", "self._lose_all()", "self._advance(Event.GIVEN_UP)"),
    _bug("a coordinator that is silent is asked for ever", "G04", f"{CLASSIC}._beat",
         "self._calls.lose_coordinator(self._options.group_id)", "pass",
         "a heartbeat that is not answered in time costs the connection, and with it the coordinator is looked up again"),
    _bug("a member joins again at once after a failure", "busy loops", f"{CLASSIC}._fail", "self._trouble, self._pausing = error, True", "self._trouble = error"),
    _bug("a change is told twice", "G10", f"{CHANGES}.end", "self._line.popleft()", "pass"),
    _bug("a member is stable before its user has taken over", "N06", f"{MEMBER}._go_on", "elif not self._changes:", "if True:"),
    _bug("a cooperative member keeps what it was not given again", "G06", f"{CLASSIC}._take_over",
         "if gone:\n        self._changes.add(Change(ChangeKind.REVOKED, gone))", "if False:\n        pass"),
    _bug("a static member that comes back has nobody join again", "G05", f"{CLASSIC}._begin_generation",
         'self._join_again("a static member came back")', "pass", "it would have to die between the two rebalances of a cooperative group: a unit test lets it"),
    _bug("what is lost was begun already", "Java 20321", f"{CHANGES}.withdraw", "change for change in self._line if change.begun", "change for change in self._line",
         "its listener is told of what is over, and then that it is lost, which harms nobody else: the unit tests see it"),
    # --- being a member of a group of the next generation
    _bug("a member says that it has given up what it still reads", "N05", f"{NEXT}._heartbeat",
         "owned = self._reconciling.places(self.owned)", "owned = self._reconciling._target or frozenset()"),
    _bug("a member gives nothing up", "N05", f"{RECONCILING}.step", "if gone:", "if False:"),
    _bug("a member that is fenced goes on as it was", "N07", f"{NEXT}._not_heard", "self._lose(error)", "self._pause(error)"),
    _bug("after a failed heartbeat a member says only what has changed", "N04", f"{NEXT}._felt", "self._said = None", "pass"),
    _bug("what a member is told counts as acknowledged", "N05", f"{RECONCILING}.aim", "self._told += 1", "self._told = self._known_as = self._told + 1",
         "what is told, and taken back before the user's thread begins with it, is too rare: the unit tests take it back"),
    _bug("a member begins with something new while it waits for the answer to what it has", "N05", f"{NEXT}._heartbeat", "self._changes.withdraw()", "pass",
         "a poll within the milliseconds until the answer is too rare: a unit test polls then"),
    _bug("what is over by the newest word is still begun", "N05", f"{NEXT}._take_in", "self._changes.withdraw()", "pass",
         "it takes over what it gives up right afterwards: the unit tests see it"),
    _bug("a listener that raised is asked again by the same poll", "N06", f"{NEXT}._was_done", "self._balked = True", "pass",
         "it harms nobody else: the unit tests see that the next poll asks"),
    _bug("what the listener raised at is owned", "N06", f"{NEXT}.carried_out", "self._changes.drop(change.partitions)", "pass"),
    _bug("nobody asks for the names of topics", "N09", f"{NEXT}._take_in",
         "self._metadata.identify(self._reconciling.nameless(self._metadata.cluster.names))", "pass"),
    _bug("a member is silent while its user gives up and takes over", "N03", f"{NEXT}.poll",
         "if self.state in BEATING:", "if self.state in BEATING and self.state is not State.RECONCILING:"),
    _bug("a member stays in the epoch in which it joined", "N02", f"{NEXT}._felt",
         "generation=answer.epoch", "generation=answer.epoch if self.state is State.JOINING else self.identity.generation"),
    _bug("a heartbeat that failed is sent again at once", "busy loops", f"{NEXT}._rest", "self._pausing = at_least", "pass"),
    _bug("a commit that was refused as outdated hurries no heartbeat", "N10", f"{NEXT}.refused", "self._stale = True", "pass",
         "the next heartbeat comes anyway: the unit tests see that it comes at once"),
    _bug("a member that joins has not given up what it had", "N07", f"{NEXT}._start_over", "self._lose_all()", "self._advance(Event.GONE)"),
    _bug("what the coordinator has to be told waits for the interval", "N04", f"{NEXT}._urgent", "return self._said", "return False and self._said"),
    # --- leading
    _bug("an assignment that came too late counts", "G02", f"{CLASSIC}._shared_out",
         "joined is not self._leads", "joined.identity != self.identity",
         "a generation's number comes again only after its coordinator has lost everything: a unit test lets it"),
    _bug("a leader that comes back believes that all it sees is shared out", "G08: growth while it was away", f"{LEADING}.go_on",
         "if self._inherited is None else", "if True else"),
    _bug("the leader shares out before it knows the topics", "G08", f"{LEADING}.go_on", "if not all(", "if False and not all(",
         "the leader's own topics are those of all in the simulation, and known before anybody joins"),
    # --- commits
    _bug("a commit does not say who commits", "C25", f"{COMMITTING}._as_member", "self._left(deadline), identity, self._instance_id", "self._left(deadline)"),
    _bug("a commit of what another member has is sent", "C25", f"{COMMIT}.begin",
         "if assignment is None or self._group.owned.get(where) != assignment:", "if False:",
         "the coordinator refuses it, in the name of a generation that is over: the unit tests see that it is not sent"),
    _bug("a partition that came back is the same one", "C24", f"{COMMIT}.begin",
         "self._group.owned.get(where) != assignment", "where not in self._group.owned",
         "no commit waits for so long that its partition goes and comes back: a unit test lets it"),
    _bug("commits are sent while the coordinator takes none", "C25", f"{COMMIT}.may_go", "return self._group.settled", "return True",
         "the coordinator refuses them, and they are sent again: the unit tests see that they wait"),
    _bug("commits overtake each other", "C24", f"{COMMITTING}._my_turn", "await self._order.acquire()",
         "self._order.locked() or await self._order.acquire()"),
    _bug("what is consumed is not committed before its partition goes", "C23", f"{REBALANCING}._told",
         "yield from self._save()", "pass", "it is read again, which at-least-once allows: the unit tests see it"),
    _bug("automatic commits store what was just handed out", "C21", f"{PROGRESS}.hand",
         "self._handed, self._out = {**self._handed, **records.next_offsets()}, None", "self._out = self._consumed.update(records.next_offsets())",
         "a commit comes with the next poll, when it counts as processed: the unit tests see one at the wrong time"),
    _bug("a commit before a rebalance does not wait for those just begun", "C24", f"{CONSUMER}._take_step",
         "await self._let_earlier_ones_begin()", "pass"),
    # --- the user's thread
    _bug("what is new is read before its listener was told", "N06", f"{CORE}.next_change", "held=True", "held=False",
         "nothing is handed out before the listener has returned, for it runs inside poll; the unit tests see what is asked for"),
    _bug("what was revoked is still read", "Java 19781", f"{CORE}.end_change", "self.fetcher.remove([where for where in change.partitions if where not in group.owned])", "pass"),
    _bug("what was assigned is never read", "a stall", f"{CORE}.end_change", "self.fetcher.release(kept, self.clock())", "pass"),
    _bug("where a partition stood in another assignment counts in this one", "C24", f"{REBALANCING}._change",
         "self._progress.forget(change.partitions)", "pass"),
    _bug("a listener that raises leaves its change undone", "G10", f"{REBALANCING}._change",
         "finally:\n        self._progress.forget(change.partitions)\n        yield OnLoop(lambda: self._core.end_change(change, error))",
         "except ZeroDivisionError:\n        raise\n    self._progress.forget(change.partitions)\n    yield OnLoop(lambda: self._core.end_change(change, error))"),
    _bug("a close does not leave", "C26", f"{CORE}.leave", "self.member().leave(", "(lambda *_: finish(None, None))(",
         "the group notices by the session time-out; the unit tests see the request"),
)
