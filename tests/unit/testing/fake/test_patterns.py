"""Regular expressions as brokers read them: what matches, and what is refused with which words."""
from __future__ import annotations

import pytest

from pyclient.testing.fake.model.patterns import InvalidPatternError, matcher

NAMES = ("orders", "Orders", "orders.eu", "orders-2", "bills", "a", "ab", "abab", "aB", "_x", "7")


def matched(pattern: str) -> list[str]:
    fits = matcher(pattern)
    return [name for name in NAMES if fits(name)]


@pytest.mark.parametrize(("pattern", "names"), [
    ("orders.*", ["orders", "orders.eu", "orders-2"]),
    ("order", []),
    ("(?<name>ab)", ["ab"]),
    ("a(?i)b|BILLS", ["bills", "ab", "aB"]),
    (r"\Qorders.eu", ["orders.eu"]),
    (r"\pN|\p{Lu}rders", ["Orders", "7"]),
    ("a{b", []),
    ("", []),
])
def test_names_are_matched_as_a_whole(pattern: str, names: list[str]) -> None:
    assert matched(pattern) == names


@pytest.mark.parametrize(("pattern", "problem"), [
    ("(", "missing closing )"),
    ("(a", "missing closing )"),
    ("[a", "missing closing ]"),
    ("[", "missing closing ]"),
    ("*", "missing argument to repetition operator"),
    ("a|*", "missing argument to repetition operator"),
    ("(*)", "missing argument to repetition operator"),
    ("a**", "invalid nested repetition operator"),
    ("a{2}{3}", "invalid nested repetition operator"),
    ("a++", "invalid nested repetition operator"),
    ("a{1001}", "invalid repeat count"),
    ("a{3,2}", "invalid repeat count"),
    (r"a\y", "invalid escape sequence"),
    (r"(a)\1", "invalid escape sequence"),
    (r"a\C", "invalid escape sequence"),
    ("a\\", "trailing backslash at end of expression"),
    ("[a\\", "trailing backslash at end of expression"),
    ("[b-a]", "invalid character class range"),
    ("[[:odd:]]", "invalid character class range"),
    (r"\p{Odd}", "invalid character class range"),
    ("(?P<n>a)(?P<n>b)", "duplicate capture group name"),
    ("(?P<n", "invalid named capture"),
    ("(?=a)", "invalid or unsupported Perl syntax"),
    ("(?<=a)", "invalid named capture"),
    ("(?P=n)", "invalid or unsupported Perl syntax"),
    ("a)", "regexp/syntax: internal error"),
    ("(?>a)", "invalid or unsupported Perl syntax"),
])
def test_an_invalid_pattern_is_rejected_with_a_brokers_message(pattern: str, problem: str) -> None:
    with pytest.raises(InvalidPatternError) as caught:
        matcher(pattern)
    assert str(caught.value) == problem
