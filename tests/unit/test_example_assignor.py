"""The example of a user's own assignor: it deals out in the given order, obeys the laws, and is found by name once its
package is installed."""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from examples.given_order_assignor import BUSIEST_FIRST, GivenOrderAssignor
from pyclient.descriptions.topics import PartitionDescription
from pyclient.plugin_loading import load_plugin
from pyclient.plugins import ClusterView, MemberView
from pyclient.records import TopicPartition
from pyclient.testing import check_assignor
from tests.distribution import run

PACKAGE: Final = Path(__file__).parents[2] / "examples" / "given_order_assignor"
FOUR: Final = ("C1-0", "C1-1", "C2-0", "C2-1")


def cluster(**topics: int) -> ClusterView:
    return ClusterView({topic: [PartitionDescription(number, 1, 0, (1,), (1,)) for number in range(count)] for topic, count in topics.items()})


def dealt(assignor: GivenOrderAssignor, view: ClusterView, *members: str) -> dict[str, list[int]]:
    answer = assignor.assign(view, {member: MemberView(tuple(view.topics)) for member in members})
    return {member: [each.partition for each in assignment.partitions] for member, assignment in answer.items()}


def test_ten_partitions_in_their_order_go_round_four_members() -> None:
    assert BUSIEST_FIRST == (5, 3, 0, 8, 2, 1, 4, 7, 6, 9)
    expected = {"C1-0": [5, 2, 6], "C1-1": [3, 1, 9], "C2-0": [0, 4], "C2-1": [8, 7]}
    assert dealt(GivenOrderAssignor(), cluster(orders=10), *FOUR) == expected
    assert dealt(GivenOrderAssignor(), cluster(orders=10), *reversed(FOUR)) == expected, "the order of members is that of their ids"


def test_partitions_that_the_order_does_not_name_come_last() -> None:
    assert dealt(GivenOrderAssignor((2, 7)), cluster(orders=4), "only") == {"only": [2, 0, 1, 3]}


def test_who_does_not_want_the_topic_is_passed_over() -> None:
    members = {"a": MemberView(("x",)), "b": MemberView(("x", "y")), "c": MemberView(())}
    answer = GivenOrderAssignor(()).assign(cluster(x=3, y=2), members)
    assert answer["a"].partitions == (TopicPartition("x", 0), TopicPartition("x", 2))
    assert answer["b"].partitions == (TopicPartition("x", 1), TopicPartition("y", 0), TopicPartition("y", 1))
    assert answer["c"].partitions == ()


def test_it_obeys_the_laws_of_assignors() -> None:
    check_assignor(GivenOrderAssignor())


def test_it_is_found_by_its_path() -> None:
    assert load_plugin("assignor", "examples.given_order_assignor:GivenOrderAssignor").name == "given-order"


def test_the_installed_package_is_found_by_its_name_and_does_what_its_page_says(tmp_path: Path) -> None:
    copy = tmp_path / "source"
    copy.mkdir()
    for name in ("__init__.py", "pyproject.toml", "README.md"):
        (copy / name).write_bytes((PACKAGE / name).read_bytes())
    target = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target), str(copy))
    program = (PACKAGE / "README.md").read_text().split("```python\n")[1].split("```")[0]
    said = run(sys.executable, "-c", f"import sys; sys.path.insert(0, {os.fspath(target)!r})\n{program}")
    assert said.splitlines()[-4:] == ["C1-0 [5, 2, 6]", "C1-1 [3, 1, 9]", "C2-0 [0, 4]", "C2-1 [8, 7]"]
