"""What users give to several calls of Admin: partitions, brokers, names; wrong ones are named before a request."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyclient.records import TopicPartition


def partitions(given: object) -> list[TopicPartition]:
    """Each partition once.

    Raises:
        TypeError: something else is among them, or there is one without a list.
    """
    if isinstance(given, TopicPartition):
        raise TypeError(f"expected a list of partitions, got one: write [{given!r}]")
    found = _listed(given, "partitions")
    wrong = [each for each in found if not isinstance(each, TopicPartition)]
    if wrong:
        raise TypeError(f'expected partitions, as [TopicPartition("orders", 0)], got {wrong[0]!r}')
    return list(dict.fromkeys(found))


def by_partition(given: object, example: str) -> dict[TopicPartition, Any]:
    """A mapping whose keys are partitions; *example* is one of its values, for the error."""
    if not isinstance(given, Mapping) or not all(isinstance(tp, TopicPartition) for tp in given):
        raise TypeError(f'expected a dict by partition, as {{TopicPartition("orders", 0): {example}}}, got {type(given).__name__}: {given!r}')
    return dict(given)


def brokers(given: object, what: str = "brokers") -> list[int]:
    """Node ids in their order."""
    return _integers(given, what, "node ids, as [1, 2]")


def names(given: object, what: str) -> list[str]:
    """Texts, where a single one would be taken for a list of its letters."""
    if isinstance(given, str):
        raise TypeError(f"{what} is the str {given!r}: write [{given!r}]")
    found = _listed(given, what)
    wrong = [each for each in found if not isinstance(each, str)]
    if wrong:
        raise TypeError(f"{what} has {wrong[0]!r}: expected str")
    return found


def known(given: object, what: str, choices: Iterable[str]) -> list[str]:
    """Names among *choices*, in any case: brokers find nothing for others, and do not say why."""
    found, right = names(given, what), {each.lower(): each for each in choices}
    wrong = [each for each in found if each.lower() not in right]
    if wrong:
        raise ValueError(f"{what} has {wrong[0]!r}: expected some of {', '.join(right.values())}")
    return [right[each.lower()] for each in found]


def numbers(given: object, what: str) -> list[int]:
    """Whole numbers."""
    return _integers(given, what, "int")


def mapping(given: object, what: str, example: str) -> Mapping[Any, Any]:
    """A mapping; others are not shown, as values may be secret."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} are of type {type(given).__name__}: expected a dict, as {example}")
    return given


def _integers(given: object, what: str, expected: str) -> list[int]:
    found = _listed(given, what)
    wrong = [each for each in found if not isinstance(each, int) or isinstance(each, bool)]
    if wrong:
        raise TypeError(f"{what} has {wrong[0]!r}: expected {expected}")
    return found


def _listed(given: Any, what: str) -> list[Any]:
    """All of it, once: an iterator has nothing for a second look."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{what} is {given!r}: write [{given!r}]")
    return list(given)
