"""What tests of the example of offsets in a database share: the topic, and what must be true behind every kill."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyclient import Producer
from tests.distribution import ROOT
from tests.unit.offsets_program import BAD, END, FIRST

LIMIT_S = 300


def fill(address: str, topic: str) -> None:
    """Records up to offset 10099; each value is its offset."""
    with Producer(bootstrap_servers=address) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(END)], partition=0).result()


def killed(address: str, topic: str, folder: Path, kind: str, *lines: int) -> list[dict[str, Any]]:
    """The program's report of every kill; *lines*: the first one, and how many it goes on by."""
    command = [sys.executable, "-m", "tests.unit.offsets_program", address, topic, str(folder), kind, *map(str, lines)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(reports: list[dict[str, Any]], kind: str) -> None:
    """Whenever it died, the rows are those before the position, each once; and the next run stores what is left, each
    once."""
    first, last = (FIRST, BAD) if kind == "broken" else (BAD, END)
    for each in reports:
        rows, position = each["dead"]
        assert position in (first, last), each
        assert rows == list(range(FIRST, position)), each
        assert each["after"] == "done", each
        assert each["end"] == [list(range(FIRST, END)), END], each
    assert [each["how"] for each in reports[:-1]] == ["killed"] * (len(reports) - 1)
    assert {each["dead"][1] for each in reports} == {first, last}
