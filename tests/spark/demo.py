"""Runs the main job as users do, on few flights, and holds its result against the CSV."""
from __future__ import annotations

import collections
import csv
import io
import itertools
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

from examples.flights.data import flights_csv
from tests.distribution import ROOT

ROWS: Final = 3000
LIMIT_S: Final = 500


def run_demo(bootstrap: str, result: Path) -> dict[str, Any]:
    """The JSON the job has written; its output is shown when it fails."""
    command = [sys.executable, "-m", "examples.flights", "--rows", str(ROWS), "--bootstrap", bootstrap, "--json", str(result)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def check_result(found: dict[str, Any], rows: int = ROWS) -> None:
    """Everything the file promises, computed here once more from the first *rows* of the CSV."""
    flights, minutes, months = collections.Counter[str](), collections.Counter[str](), set()
    with zipfile.ZipFile(flights_csv()) as archive, archive.open("flights.csv") as raw:
        for row in itertools.islice(csv.DictReader(io.TextIOWrapper(raw, "utf-8")), rows):
            flights[row["carrier"]] += 1
            minutes[row["carrier"]] += 0 if row["dep_delay"] in ("", "NA") else int(row["dep_delay"])
            months.add((row["carrier"], row["month"]))
    assert set(found) == {
        "rows_in", "rows_read", "micro_batches", "restarts", "aggregates", "seconds", "dep_delay_sum", "flights"}
    assert (found["rows_in"], found["rows_read"], found["aggregates"]) == (rows, rows, len(months))
    assert found["micro_batches"] >= 4
    assert found["restarts"] >= 1
    assert all(spent >= 0 for spent in found["seconds"].values())
    assert {"produce", "aggregate", "read"} <= set(found["seconds"])
    assert found["flights"] == dict(flights)
    assert found["dep_delay_sum"] == dict(minutes)

