"""Runs the example of offsets in a database, and kills it behind each of its lines in turn: a forked process for each.

Arguments: the brokers' address, the topic, a folder, ``broken`` or ``mended``. Prints a line of JSON for each line: the
database when the process was dead, and when the next process had ended.
"""
from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from examples import offsets_in_database as example
from examples.offsets_in_database import Database, copy
from pyclient import Consumer, Record, TopicPartition

FIRST, BAD, END = 10_095, 10_098, 10_100


def run(address: str, topic: str, path: Path, *, broken: bool) -> None:
    """What a service does from start to end."""
    def make(record: Record) -> str:
        if broken and record.offset == BAD:
            raise ValueError("cannot work on this one")
        return (record.value or b"").decode()

    where = TopicPartition(topic, 0)
    database = Database(path)
    with Consumer(bootstrap_servers=address, group_id=f"{topic}-to-sqlite", group_instance_id="one", enable_auto_commit=False,
                  auto_offset_reset="none", fetch_max_wait_ms=50) as consumer:
        copy(consumer, [topic], database, make, lambda: database.position(where) == END)
    database.close()


def killed_at(number: int) -> Callable[[FrameType, str, Any], Any]:
    """For sys.settrace: the process dies at the line of the example that is the *number*-th to run."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != example.__file__:
            return None
        if event == "line":
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def ended(work: Callable[[], None], killed: int | None = None) -> str:
    """Do *work* in a process of its own: how it ended."""
    child = os.fork()
    if child == 0:
        try:
            sys.settrace(None if killed is None else killed_at(killed))
            work()
            os._exit(0)
        except ValueError:
            os._exit(3)
        except BaseException:  # noqa: BLE001 a child never comes back
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "done", 3: "refused", -signal.SIGKILL: "killed"}.get(code, f"code {code}")


def state(path: Path, topic: str) -> tuple[list[int], int | None]:
    """The offsets of the rows, and where reading goes on."""
    database = Database(path)
    try:
        return [offset for _, _, offset, _ in database.rows()], database.position(TopicPartition(topic, 0))
    finally:
        database.close()


def prepared(address: str, topic: str, path: Path, *, broken: bool) -> None:
    """A database at the first offset; for the mended program one that the broken program has ended with."""
    database = Database(path)
    database.begin_at(TopicPartition(topic, 0), FIRST)
    database.close()
    if not broken:
        assert ended(lambda: run(address, topic, path, broken=True)) == "refused"


def main(address: str, topic: str, folder: str, kind: str, first: str = "1", step: str = "1") -> None:
    """Every *step*-th line from the *first* on, until the program gets to its end."""
    clean, path = Path(folder, f"{kind}.clean"), Path(folder, f"{kind}.db")
    prepared(address, topic, clean, broken=kind == "broken")
    for number in range(int(first), 10_000, int(step)):
        shutil.copy(clean, path)
        how = ended(lambda: run(address, topic, path, broken=kind == "broken"), number)
        dead = state(path, topic)
        after = ended(lambda: run(address, topic, path, broken=False))
        print(json.dumps({"line": number, "how": how, "dead": dead, "after": after, "end": state(path, topic)}), flush=True)
        for left in path.parent.glob(f"{path.name}*"):
            left.unlink()
        if how != "killed":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
