"""Many seeds on all cores: what broke, and whether the sweep was worth its name."""
from __future__ import annotations

import functools
import math
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

from pyclient.core.transitions import TABLES
from pyclient.testing.simulation.families import FAMILIES, Family
from pyclient.testing.simulation.invariants import ALONE, INVARIANTS
from pyclient.testing.simulation.run import Outcome

USUAL: Final = 0.15
"""Faults hit something, rules are evaluated and rows of state tables are taken in at least this share of the seeds."""
UNUSUAL: Final = 0.01
"""The same of those listed in `SELDOM`."""
WORTH_ITS_NAME: Final = 0.98
"""At least so many seeds are long enough, and have enough records and faults."""
ODDS: Final = 1e-6
"""How likely a block of seeds may be counted as dishonest by chance, in each respect."""
LEAST_SECONDS: Final = 60.0
CHUNK: Final = 4

NOT_TAKEN: Final = {
    ("classic member", "ASSIGNING", "REJOIN"): "a leader's assignor must raise, and those of the simulation do not; the unit tests see it",
    ("transaction", "READY", "INITIALIZE"): "a worker has one transactional id",
    ("transaction", "IN_TRANSACTION", "SEND_OFFSETS"): "the row only says that the call is allowed",
}
"""Rows of state tables that no seed can take yet, and why."""

RARE: Final = {
    ("classic member", "JOINING", "LOST"): "a coordinator must have put the member out, or refuse it as unknown, just when it joins again",
    ("classic member", "ASSIGNING", "LOST"): "a heartbeat must be refused while the leader's assignor works",
    ("classic member", "TAKING_OVER", "LOST"): "its coordinator must put a member out while its user carries the assignment out",
    ("consumer member", "ACKNOWLEDGING", "LOST"): "its coordinator must put a member out within the moment until its heartbeat is answered",
    **{("classic member", state, "LEFT"): "a member must leave, or its user be away for too long, in the middle of a rebalance" for state in ("ASSIGNING", "SYNCING")},
    **{(f"{kind} member", "OUT", "LEFT"): "a member must leave between having been put out and its next poll" for kind in ("classic", "consumer")},
    **{(f"{kind} member", state, "REFUSED"): "a coordinator must refuse the member permanently just then, which few faults do" for kind, state in (
        ("classic", "REVOKING"), ("classic", "JOINING"), ("classic", "ASSIGNING"), ("classic", "SYNCING"), ("classic", "TAKING_OVER"), ("classic", "STABLE"),
        ("consumer", "ACKNOWLEDGING"), ("consumer", "RECONCILING"))},
    **{("consumer member", state, "LEFT"): "a member must leave within the moment until its heartbeat is answered" for state in ("JOINING", "ACKNOWLEDGING")},
    **{("consumer member", "LISTENER_FAILED", event): "it must happen between the poll in which the listener raised and the next one"
       for event in ("LOST", "LEFT", "REFUSED")},
    ("sequence", "DRAINING", "STORED"): "a broker that checks sequences stores nothing behind a gap, unless it has forgotten the producer meanwhile",
    ("connection", "CONNECTING", "LOST"): "two addresses of a name must answer within the same instant",
    ("connection", "REAUTHENTICATING", "RETIRED"): "a connection must turn out not to be wanted just while its login is renewed, which counts as use",
    ("connection", "DRAINING", "LOST"): "a cut must fall between the last request of a connection that was given up and its answer",
    ("transaction", "INITIALIZING", "REFUSED"): "a coordinator must refuse a producer id, which no fault does",
    **{("transaction", state, "FATAL"): "nothing is in flight that could be refused" for state in ("UNINITIALIZED", "READY")},
    ("transaction", "ABORTABLE_ERROR", "FATAL"): "a batch must be refused permanently between the failure of another one and the abort",
}
"""Rows that a sweep may or may not take, and why."""


SELDOM: Final = frozenset({
    # One seed of five logs in, one of ten with tokens, two of 25 speak TLS.
    "login_cut", "login_refused", "login_unanswered", "token_outage", "connection CONNECTING OPENED_FOR_TLS", "connection TLS SECURED", "connection TLS LOST",
    "only_real_truncations_are_reported", "metadata refresh OUTDATED INCOMPLETE", "sequence DRAINING GAP",
    *(f"position {row}" for row in (
        "FETCHING DIVERGED", "FETCHING OUT_OF_RANGE", "FETCHING SOUGHT", "STUCK FOUND", "STUCK SOUGHT", "AWAIT_RESET NO_POLICY", "AWAIT_RESET SOUGHT")),
    *(f"classic member {row}" for row in (
        "JOINING REJOIN", "REVOKING LOST", "SYNCING LOST", "STABLE LOST", "REVOKING LEFT", "JOINING LEFT", "TAKING_OVER LEFT", "FAILED LEFT")),
    *(f"consumer member {row}" for row in (
        "RECONCILING LISTENER_RAISED", "LISTENER_FAILED LISTENER_RETRIED", "RECONCILING LOST", "STABLE LOST", "JOINING REFUSED", "STABLE REFUSED",
        "LOSING LEFT", "RECONCILING LEFT", "FAILED LEFT")),
    *(f"transaction {row}" for row in ("INITIALIZING FATAL", "COMMITTING FAILED", "COMMITTING FATAL", "ABORTABLE_ERROR FAILED")),
})
"""Faults, rules and rows that few seeds have: long sweeps must have them, short ones may do without."""


def fewest(share: float, seeds: int) -> int:
    """In how many of so many seeds something must be found that each seed has with the probability *share*.

    Any block of seeds has as many, but one in a million.
    """
    count, logarithm = 0, seeds * math.log1p(-share)
    total = math.exp(logarithm)
    while total < ODDS:
        count += 1
        logarithm += math.log((seeds - count + 1) / count * share / (1 - share))
        total += math.exp(logarithm)
    return count


@attrs.define
class Summary:
    """Findings of a sweep."""

    family: Family = FAMILIES[ALONE]
    seeds: int = 0
    seconds: float = 0.0
    broken: list[Outcome] = attrs.field(factory=list)
    hits: Counter[str] = attrs.field(factory=Counter)
    evaluated: Counter[str] = attrs.field(factory=Counter)
    transitions: Counter[tuple[str, str, str]] = attrs.field(factory=Counter)
    found_in: Counter[str] = attrs.field(factory=Counter)
    """Fault kind, invariant or row → in how many seeds it hit something, was evaluated or taken."""
    in_flight: int = 0
    thin: list[int] = attrs.field(factory=list)
    """Seeds that were too short, or had too few records or faults."""
    per_seed: list[dict[str, Any]] = attrs.field(factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one seed in."""
        self.seeds += 1
        self.hits.update(outcome.hits)
        self.evaluated.update(outcome.evaluated)
        self.transitions.update(outcome.transitions)
        self.found_in.update({*outcome.hits, *(name for name, times in outcome.evaluated.items() if times), *map(" ".join, outcome.transitions)})
        self.in_flight += outcome.hit_in_flight
        self.per_seed.append({
            "seed": outcome.seed, "digest": outcome.digest, "broken": outcome.invariant, "sent": outcome.sent, "acked": outcome.acked,
            "failed": outcome.failed, "consumed": outcome.consumed, "requests": outcome.requests, "virtual_s": round(outcome.virtual_s, 3),
            "hits": sum(outcome.hits.values())})
        if outcome.broken is not None:
            self.broken.append(outcome)
        elif outcome.sent + outcome.consumed < self.family.least_records or sum(outcome.hits.values()) < self.family.least_faults or outcome.virtual_s < LEAST_SECONDS:
            self.thin.append(outcome.seed)

    def dishonest(self) -> list[str]:
        """Why this sweep proves less than it should; empty when it was honest."""
        found = [f"{what} in {self.found_in[name]} of {self.seeds} seeds only, and not in {fewest(share, self.seeds)}"
                 for name, (what, share) in self._expected().items() if self.found_in[name] < fewest(share, self.seeds)]
        found += [f"{' '.join(row)} is listed as never taken, and was" for row in NOT_TAKEN if self.transitions[row]]
        if self.in_flight < fewest(self.family.least_in_flight, self.seeds):
            found.append(f"a fault hit records in flight, or a group that rebalanced, in {self.in_flight} of {self.seeds} seeds only")
        if self.seeds - len(self.thin) < fewest(WORTH_ITS_NAME, self.seeds):
            found.append(f"{len(self.thin)} seeds with under {self.family.least_records} records, {self.family.least_faults} hits or {LEAST_SECONDS:.0f} s: {self.thin[:10]}")
        return found

    def _expected(self) -> dict[str, tuple[str, float]]:
        """Faults, invariants and rows by name: what is to be found, and in which share of the seeds."""
        rules = [name for name, each in INVARIANTS.items() if each.family == self.family.name]
        taken = [" ".join(row) for row in rows(self.family) if row not in {**NOT_TAKEN, **RARE}]
        said = {**dict.fromkeys(self.family.kinds, "hit something"), **dict.fromkeys(rules, "was evaluated"), **dict.fromkeys(taken, "was taken")}
        return {name: (f"{name} {what}", UNUSUAL if name in SELDOM else USUAL) for name, what in said.items()}

    def as_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        return {
            "seeds": self.seeds, "seconds": round(self.seconds, 2), "seeds_per_minute": round(60 * self.seeds / max(self.seconds, 1e-9), 1),
            "broken": [{"seed": each.seed, "invariant": each.invariant, "text": each.broken} for each in self.broken],
            "faults": {kind: {"seeds": self.found_in[kind], "hits": self.hits[kind]} for kind in self.family.kinds},
            "invariants": {name: {"rule": each.rule, "evaluated": self.evaluated[name], "seeds": self.found_in[name]} for name, each in INVARIANTS.items() if each.family == self.family.name},
            "transitions": [{"table": table, "state": state, "event": event, "taken": self.transitions[table, state, event], "seeds": self.found_in[f"{table} {state} {event}"],
                             "reason": {**NOT_TAKEN, **RARE}.get((table, state, event))} for table, state, event in rows(self.family)],
            "in_flight": self.in_flight, "dishonest": self.dishonest(), "per_seed": self.per_seed,
        }


def rows(family: Family) -> Iterator[tuple[str, str, str]]:
    """Every row of every state table that this family exercises."""
    for table in [each for each in TABLES.values() if family.exercises(each.name)]:
        for state, event in table.rows:
            yield table.name, state.name, event.name


def sweep(seeds: Sequence[int], *, jobs: int | None = None, seen: Callable[[Outcome], object] = lambda _: None,
          stop_at: int | None = None, family: str = ALONE) -> Summary:
    """Run *seeds* of a *family*, on *jobs* processes (left out: one per core); stop after *stop_at* broken ones."""
    summary, began = Summary(FAMILIES[family]), time.perf_counter()
    for outcome in _outcomes(summary.family, seeds, jobs or os.cpu_count() or 1):
        summary.add(outcome)
        seen(outcome)
        if stop_at is not None and len(summary.broken) >= stop_at:
            break
    summary.seconds = time.perf_counter() - began
    summary.per_seed.sort(key=lambda each: each["seed"])
    return summary


def _outcomes(family: Family, seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from (family.run(seed, None) for seed in seeds)
        return
    # Ctrl-C reaches every process of a terminal: the one that sweeps ends the others.
    with multiprocessing.get_context("spawn").Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap_unordered(functools.partial(family.run, faults=None), seeds, CHUNK)
