"""``python -m examples.flights``: the whole job, and its checks. Exit code 0 only if every check holds."""
from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from examples.flights import data, job, topics
from examples.flights.data import CarrierMonth, Delays
from examples.flights.report import Check, Report, write_json

LEAST_ROWS: Final = 100
LEAST_BATCHES: Final = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; 0 if every check holds, else 1."""
    asked = _parser().parse_args(arguments)
    report = Report()
    with contextlib.ExitStack() as ends:
        scratch = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="flights-")))
        with report.step("broker", "start Kafka"):
            bootstrap = asked.bootstrap or ends.enter_context(_cluster(report))
        good = _run(report, bootstrap, asked.rows, scratch, asked.json)
    return 0 if good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=main.__doc__)
    parser.add_argument("--rows", "--flights", type=_rows, metavar="N", help="use the first N flights (all 336,776 without)")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running Kafka; without, one is started for the job")
    parser.add_argument("--json", type=Path, default=Path("build/demo.json"), metavar="FILE", help="where to write the result")
    return parser


def _rows(text: str) -> int:
    count = int(text)
    if count < LEAST_ROWS:
        raise argparse.ArgumentTypeError(f"{count} flights are too few for {job.BATCHES} batches of every partition: {LEAST_ROWS} at least")
    return count


@contextlib.contextmanager
def _cluster(report: Report) -> Iterator[str]:
    from pyclient.testing import LocalCluster

    with LocalCluster() as kafka:
        report.say(f"{kafka.description} at {kafka.bootstrap_servers}")
        yield kafka.bootstrap_servers


def _run(report: Report, bootstrap: str, limit: int | None, scratch: Path, result: Path) -> bool:
    with report.step("expect", "compute the right answer from the CSV"):
        right = data.expected(data.rows(limit))
        total = sum(each.flights for each in right.values())
    names = topics.create(bootstrap)
    with report.step("produce", f"produce flights to the topic {names.flights}", total) as advance:
        rows_in = topics.produce(bootstrap, names.flights, data.rows(limit), advance)
    with contextlib.ExitStack() as ends:
        with report.step("spark", "start Spark"):
            spark = ends.enter_context(job.session(scratch))
        with report.step("aggregate", f"aggregate with Spark, from {names.flights} to {names.delays}", total) as advance:
            outcome = job.run(spark, bootstrap, names, total, scratch, _further(advance))
    with report.step("read", f"read the topic {names.delays}"):
        found = topics.newest(bootstrap, names.delays)
        stored = topics.records_in(bootstrap, names.flights)
    report.table(found)
    write_json(result, rows_in=rows_in, rows_read=outcome.rows, micro_batches=outcome.micro_batches, restarts=outcome.restarts,
               seconds=report.seconds, found=found)
    good = report.checks([
        Check("Kafka holds every flight once", stored == rows_in == total, f"{stored:,} of {total:,}"),
        Check("Spark read every flight once", outcome.rows == rows_in, f"{outcome.rows:,} of {rows_in:,}"),
        Check(f"in {LEAST_BATCHES} micro-batches or more", outcome.micro_batches >= LEAST_BATCHES, str(outcome.micro_batches)),
        Check("stopped and restarted from its checkpoint", outcome.restarts >= 1, f"{outcome.restarts}"),
        *_compared(right, found),
    ])
    spent = ", ".join(f"{step} {seconds:.1f}" for step, seconds in report.seconds.items())
    report.say(f"{rows_in:,} rows in, {outcome.rows:,} rows read, {len(found)} aggregates out; seconds: {spent}; written to {result}")
    return good


def _further(advance: job.Show) -> job.Show:
    """From totals to steps."""
    before = 0

    def show(rows: int) -> None:
        nonlocal before
        advance(rows - before)
        before = rows

    return show


def _compared(right: Mapping[CarrierMonth, Delays], found: Mapping[CarrierMonth, Delays]) -> Iterator[Check]:
    """Everything that was aggregated against the CSV: which keys there are, and each of their figures."""
    yield Check("one aggregate per carrier and month of the CSV", set(found) == set(right), f"{len(found)} of {len(right)}")
    for number, name in enumerate(Delays._fields):
        wrong = [key for key in right if key not in found or found[key][number] != right[key][number]]
        total = sum(each[number] for each in found.values())
        first = "" if not wrong else f"; {len(wrong)} differ, the first is {wrong[0]}"
        yield Check(f"{name} of each as in the CSV", not wrong, f"{total:,} in all{first}")


if __name__ == "__main__":
    sys.exit(main())
