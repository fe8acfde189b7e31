"""Rounds of all clients in turns, and the tables made of them: what `produce` and `consume` have in common.

A case is a name and the clients that take part; the rest of it is its benchmark's own business.
"""
from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, TypeVar

from benchmarks._process import Child

PACKAGES: Final = ("confluent-kafka", "kafka-python", "aiokafka", "cramjam", "Cython")


class Case(Protocol):
    """What all clients do in turn."""

    @property
    def name(self) -> str: ...
    @property
    def clients(self) -> tuple[str, ...]: ...
    def _replace(self, *, clients: tuple[str, ...]) -> Self: ...


C = TypeVar("C", bound=Case)


class Variant(NamedTuple):
    """A client, with its defaults or tuned, in a case if several are measured together."""

    client: str
    tuned: bool = False
    case: str = ""

    @property
    def name(self) -> str:
        return f"{self.client}, tuned" if self.tuned else self.client


def variants(clients: Iterable[str], untuned: tuple[str, ...] = ("pyclient",)) -> list[Variant]:
    """Ours with its defaults; each peer with its defaults and tuned.

    *untuned* are the first words of the names of clients that have no setting to tune.
    """
    return [Variant(client, tuned) for client in clients for tuned in (False, True) if not (tuned and client.startswith(untuned))]


def count_of(counts: Mapping[str, int], client: str) -> int:
    """The figure of the longest first words that the client's name begins with."""
    return counts[max((name for name in counts if client.startswith(name)), key=len)]


# --- rounds ----------------------------------------------------------------------------------------------------------

Answers = dict[Variant, list[dict[str, Any]]]


def shuffled(those: Iterable[Variant], chance: random.Random) -> list[Variant]:
    """In a random order; those of one case next to each other, since the machine's speed drifts."""
    listed = list(those)
    cases = sorted({each.case for each in listed})
    place = {case: number for number, case in enumerate(chance.sample(cases, len(cases)))}
    return sorted(chance.sample(listed, len(listed)), key=lambda each: place[each.case])


def interleaved(module: str, those: Iterable[Variant], rounds: int, chance: random.Random, ask: Callable[[Child, Variant, int], dict[str, Any]]) -> Answers:
    """What a child for each variant answers, in a random order in every round; round 0 warms up and does not count."""
    taken: Answers = {variant: [] for variant in those}
    with contextlib.ExitStack() as ends:
        children = {variant: ends.enter_context(contextlib.closing(Child(module))) for variant in taken}
        for number in range(rounds + 1):
            for variant in shuffled(children, chance):
                answer = ask(children[variant], variant, number)
                if "missing" in answer:
                    print(f"  left out: {variant.name}: {answer['missing']}", flush=True)
                    children.pop(variant)
                elif number:
                    taken[variant].append(answer)
    return {variant: answers for variant, answers in taken.items() if answers}


class Figure(NamedTuple):
    """Medians of the rounds; CPU in µs per record, and of the best round."""

    cpu_us: float
    best_us: float
    records_per_s: float
    records: int


Results = dict[str, dict[str, Figure]]


def figures(taken: Answers) -> dict[str, Figure]:
    return {variant.name: figure(answers) for variant, answers in taken.items()}


def figure(answers: Sequence[Mapping[str, Any]]) -> Figure:
    cpu = [answer["cpu"] / answer["records"] * 1e6 for answer in answers]
    return Figure(statistics.median(cpu), min(cpu), statistics.median(answer["records"] / answer["seconds"] for answer in answers), answers[0]["records"])


def medians(taken: Answers, *names: str) -> dict[str, dict[str, float]]:
    """The median of each of the answers' numbers, by client."""
    return {variant.name: {name: statistics.median(answer[name] for answer in answers) for name in names} for variant, answers in taken.items()}


# --- what must be reached --------------------------------------------------------------------------------------------


class Bound(NamedTuple):
    """How many times less CPU, or more records/s, ours must have than the better setting of a peer."""

    case: str
    client: str
    peer: str
    must: float
    what: Literal["less CPU", "records/s"] = "less CPU"

    def times(self, results: Mapping[str, Mapping[str, Figure]]) -> float | None:
        """The ratio; None when one of both was not measured."""
        found = results.get(self.case, {})
        ours, theirs = found.get(self.client), [each for name, each in found.items() if name in (self.peer, f"{self.peer}, tuned")]
        if ours is None or not theirs:
            return None
        if self.what == "less CPU":
            return min(each.cpu_us for each in theirs) / ours.cpu_us
        return ours.records_per_s / max(each.records_per_s for each in theirs)


def reached(bounds: Iterable[Bound], results: Mapping[str, Mapping[str, Figure]]) -> list[dict[str, Any]]:
    """The bounds whose clients were measured, with their ratios."""
    return [{**bound._asdict(), "times": times} for bound in bounds if (times := bound.times(results)) is not None]


# --- what is printed -------------------------------------------------------------------------------------------------


def table(results: Mapping[str, Mapping[str, Figure]], own: Callable[[str], str]) -> Iterator[str]:
    """Markdown: a row for each case and client; *own* names the client of ours that a client is compared with."""
    yield "| Case | Client | CPU µs/record (best) | records/s | CPU / ours |"
    yield "| --- | --- | --- | --- | --- |"
    for case, measured in results.items():
        for name, found in measured.items():
            ours = measured.get(own(name))
            ratio = f"{found.cpu_us / ours.cpu_us:.1f}×" if ours else "–"
            yield f"| {case} | {name} | {found.cpu_us:.3f} ({found.best_us:.3f}) | {found.records_per_s:,.0f} | {ratio} |"


def bounds_table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield "| Case | pyclient | against the best of | times | must |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows:
        yield f"| {row['case']} | {row['client']} | {row['peer']} | {row['times']:.1f}× {row['what']} | {row['must']}× |"


def throughput_tables(results: Results, own: Callable[[str], str], bounds: Iterable[Bound]) -> Iterator[Iterator[str]]:
    """All cases, then what must be reached; nothing where nothing was measured."""
    if results:
        yield table(results, own)
    if rows := reached(bounds, results):
        yield bounds_table(rows)


def plain_table(title: str, found: Mapping[str, Mapping[str, float]], columns: Mapping[str, str]) -> Iterator[str]:
    """A row for each client; *columns* are headings and how their numbers are written, by their names in *found*."""
    yield f"| {title} | " + " | ".join(columns) + " |"
    yield "| --- |" + " --- |" * len(columns)
    for client, row in found.items():
        yield f"| {client} | " + " | ".join(form.format(**row) for form in columns.values()) + " |"


def latency_table(title: str, found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    return plain_table(title, found, {"p50 µs": "{p50:.0f}", "p99 µs": "{p99:.0f}"})


def joined(parts: Iterable[Iterable[str]]) -> str:
    return "\n\n".join("\n".join(part) for part in parts)


def kept(throughput: Mapping[str, Mapping[str, Any]]) -> Results:
    """Figures as they stand in the JSON."""
    return {case: {name: Figure(**found) for name, found in measured.items()} for case, measured in throughput.items()}


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def described(document: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """When, where and with what was measured."""
    used = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return (f"{document['date'][:10]}, CPython {document['python']}, {document['machine']}, {results['broker']}; {used}. "
            f"Medians of {results['rounds']} interleaved rounds.")


# --- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser, quick: Sequence[str]) -> None:
    """What to run; *quick* are the names of ``--quick``."""
    parser.set_defaults(quick_names=quick)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, metavar="TIMES", help="more or fewer records in a round (1.0)")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(quick)}; a quarter of the records")
    parser.add_argument("--only", "--cases", metavar="TEXT", action="append", default=[], help="cases whose name holds it; may be repeated")
    parser.add_argument("--clients", metavar="TEXT", action="append", default=[], help="clients whose name holds it; may be repeated")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="measure nothing: print the README's tables of a kept JSON file")


def scale_of(arguments: argparse.Namespace) -> float:
    scale: float = arguments.scale * (0.25 if arguments.quick else 1.0)
    return scale


def wanted(arguments: argparse.Namespace, name: str) -> bool:
    return any(text in name for text in arguments.only) if arguments.only else not arguments.quick or name in arguments.quick_names


def clients_wanted(arguments: argparse.Namespace, clients: Iterable[str]) -> tuple[str, ...]:
    texts = arguments.clients or [""]
    return tuple(client for client in clients if any(text in client for text in texts))


def chosen(arguments: argparse.Namespace, cases: Iterable[C]) -> list[C]:
    """The cases that were asked for, with the clients that were."""
    return [case._replace(clients=clients_wanted(arguments, case.clients)) for case in cases if wanted(arguments, case.name)]


def from_kept(arguments: argparse.Namespace, name: str, written: Callable[[Mapping[str, Any]], str]) -> dict[str, object]:
    """``--markdown``: print what *written* makes of the JSON's part *name*."""
    document = json.loads(arguments.markdown.read_text())
    print(f"{described(document, document[name])}\n\n{written(document[name])}\n")
    return dict(document[name])
