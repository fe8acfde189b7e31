"""What the user sees: a progress bar per step (lines without a terminal), the table, the checks and the JSON file."""
from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights.data import CarrierMonth, Delays

LINE_EVERY_S: Final = 2.0

Advance = Callable[[int], None]


class Check(NamedTuple):
    """Something that must be true, and what was found."""

    rule: str
    holds: bool
    found: str


class Report:
    """Shows steps while they run, and remembers how long each took."""

    def __init__(self) -> None:
        self._console: Final = Console(file=sys.stdout)
        self.seconds: dict[str, float] = {}

    def say(self, text: str) -> None:
        """One line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, name: str, what: str, total: int | None = None) -> Iterator[Advance]:
        """Run a step; the caller reports its progress. Its time is kept under *name*."""
        began = time.monotonic()
        shown = self._bar if self._console.is_terminal else self._lines
        with shown(what, total) as advance:
            yield advance
        self.seconds[name] = round(time.monotonic() - began, 2)
        self.say(f"{what}: {self.seconds[name]:.1f} s")

    @contextmanager
    def _bar(self, what: str, total: int | None) -> Iterator[Advance]:
        counted = [BarColumn(), MofNCompleteColumn()] if total else [BarColumn()]
        with Progress(TextColumn("{task.description}"), *counted, TimeElapsedColumn(), console=self._console, transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda more: progress.advance(task, more)

    @contextmanager
    def _lines(self, what: str, total: int | None) -> Iterator[Advance]:
        done, shown_at = 0, time.monotonic()

        def advance(more: int) -> None:
            nonlocal done, shown_at
            done += more
            if total and more and time.monotonic() - shown_at > LINE_EVERY_S:
                shown_at = time.monotonic()
                self.say(f"{what}: {done:,} of {total:,}")

        self.say(f"{what} …")
        yield advance

    def table(self, found: Mapping[CarrierMonth, Delays]) -> None:
        """Flights and mean delays of each carrier, and its worst month."""
        table = Table(title="Delays of flights from New York in 2013, in minutes")
        for heading in ("carrier", "flights", "mean departure delay", "mean arrival delay", "worst month (departures)"):
            table.add_column(heading, justify="left" if heading == "carrier" else "right")
        for carrier in sorted({carrier for carrier, _ in found}):
            months = {month: each for (who, month), each in found.items() if who == carrier}
            year = Delays(*map(sum, zip(*months.values(), strict=True)))
            worst = max(months, key=lambda month: _mean(months[month].dep_delay_sum, months[month].dep_delays))
            table.add_row(
                carrier, f"{year.flights:,}", f"{_mean(year.dep_delay_sum, year.dep_delays):.1f}",
                f"{_mean(year.arr_delay_sum, year.arr_delays):.1f}",
                f"{worst} ({_mean(months[worst].dep_delay_sum, months[worst].dep_delays):.1f})")
        self._console.print(table)

    def checks(self, checks: Sequence[Check]) -> bool:
        """Show each check; whether all hold."""
        for check in checks:
            self.say(f"{'ok    ' if check.holds else 'FAILED'} {check.rule}: {check.found}")
        return all(check.holds for check in checks)


def _mean(total: int, count: int) -> float:
    return total / count if count else 0.0


def write_json(path: Path, *, rows_in: int, rows_read: int, micro_batches: int, restarts: int, seconds: Mapping[str, float],
               found: Mapping[CarrierMonth, Delays]) -> None:
    """Write what the run found, for programs."""
    by_carrier = {carrier: [each for (who, _), each in found.items() if who == carrier] for carrier in sorted({who for who, _ in found})}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({
        "rows_in": rows_in,
        "rows_read": rows_read,
        "micro_batches": micro_batches,
        "restarts": restarts,
        "aggregates": len(found),
        "seconds": dict(seconds),
        "dep_delay_sum": {carrier: sum(each.dep_delay_sum for each in months) for carrier, months in by_carrier.items()},
        "flights": {carrier: sum(each.flights for each in months) for carrier, months in by_carrier.items()},
    }, indent=2) + "\n")
