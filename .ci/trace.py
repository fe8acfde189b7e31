"""Print each protocol rule with the tests that prove it and how they ended; fail where one has no proof.

Rules: docs/protocol-rules.md, one list item each: ``- **M08** text``. A test proves a rule when its name or docstring
quotes the rule's ID, or when the rule names it: ``(tests: `test_a`, `test_b`)``. A rule may instead say why it needs no
test: ``(no test: one sentence.)``, at most one rule in ten of a list. Results: the JUnit files under build/junit; an
unsteady test (second_try.py) proves its rule.
"""
from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from junit import GOOD, RESULTS, ROOT, cases

RULES: Final = ROOT / "docs" / "protocol-rules.md"
MOST_WITHOUT_TEST: Final = 0.10

ITEM: Final = re.compile(r"^- \*\*([A-Z]\d\d)\*\* (.*(?:\n  .*)*)", re.MULTILINE)
NAMED: Final = re.compile(r"\(tests: ([^)]*)\)")
REASON: Final = re.compile(r"\(no test: ([^)]*\.)\)")
ID: Final = re.compile(r"(?<![A-Za-z0-9])([A-Z]\d\d)(?![0-9A-Za-z])")


class Rule(NamedTuple):
    id: str
    text: str
    tests: frozenset[str]
    """Names of tests that the rule itself gives."""
    reason: str | None


class Test(NamedTuple):
    module: str
    name: str
    ids: frozenset[str]

    def __str__(self) -> str:
        return f"{self.module}::{self.name}"


def rules(document: str) -> dict[str, list[Rule]]:
    """The rules by the heading of their list."""
    lists = {}
    for section in re.split(r"^## ", document, flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0].strip()
        if found := [rule(*match.groups()) for match in ITEM.finditer(section)]:
            lists[heading] = found
    return lists


def rule(identifier: str, text: str) -> Rule:
    whole = " ".join(text.split())
    named = NAMED.search(whole)
    reason = REASON.search(whole)
    plain = NAMED.sub("", REASON.sub("", whole)).strip()
    return Rule(identifier, plain, frozenset(re.findall(r"`(\w+)`", named[1] if named else "")), reason and reason[1])


def ids(*texts: str | None) -> frozenset[str]:
    return frozenset(found for text in texts for found in ID.findall((text or "").replace("_", " ")))


def tests(folder: Path) -> Iterator[Test]:
    """Every test function under *folder*, methods of classes included."""
    for path in sorted(folder.rglob("test_*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        yield from tests_of(ast.parse(path.read_text()), module)


def tests_of(node: ast.Module | ast.ClassDef, module: str) -> Iterator[Test]:
    inherited = ids(node.name, ast.get_docstring(node)) if isinstance(node, ast.ClassDef) else frozenset()
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from tests_of(child, f"{module}.{child.name}")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name.startswith("test_"):
            yield Test(module, child.name, inherited | ids(child.name, ast.get_docstring(child)))


def results(folder: Path) -> dict[tuple[str, str], str]:
    """The worst outcome seen of each test over all its parameters and all files."""
    order = (*GOOD, "skipped", "failed")
    worst: dict[tuple[str, str], str] = {}
    for case in cases(folder):
        key = (case.classname, case.name.partition("[")[0])
        worst[key] = max(worst.get(key, "passed"), case.outcome, key=order.index)
    return worst


def proofs(lists: Mapping[str, Sequence[Rule]], found: Sequence[Test]) -> dict[str, list[Test]]:
    """The tests of each rule; a name that a rule gives but no test has is a fault."""
    by_rule: dict[str, list[Test]] = defaultdict(list)
    names = {test.name for test in found}
    for each in (rule for group in lists.values() for rule in group):
        for missing in sorted(each.tests - names):
            sys.exit(f"{each.id} names {missing}, which is no test; correct {RULES.relative_to(ROOT)}")
        by_rule[each.id] = [test for test in found if each.id in test.ids or test.name in each.tests]
    return by_rule


def report(lists: Mapping[str, Sequence[Rule]]) -> list[str]:
    """Print the table; return what is wrong."""
    by_rule = proofs(lists, list(tests(ROOT / "tests")))
    outcomes = results(RESULTS)
    faults = []
    for heading, group in lists.items():
        print(f"\n{heading}")
        for each in group:
            print(f"  {each.id}  {each.text}")
            faults += report_rule(each, by_rule[each.id], outcomes)
        excused = [each.id for each in group if each.reason and not by_rule[each.id]]
        if len(excused) > MOST_WITHOUT_TEST * len(group):
            faults.append(f"{heading}: {len(excused)} of {len(group)} rules have no test ({', '.join(excused)})")
    if not outcomes:
        faults.append(f"no results under {RESULTS.relative_to(ROOT)}: run `make test-all` first")
    return faults


def report_rule(each: Rule, proven_by: Sequence[Test], outcomes: Mapping[tuple[str, str], str]) -> list[str]:
    ends = [(test, outcomes.get((test.module, test.name), "not run")) for test in proven_by]
    for test, end in ends:
        print(f"       {end:8} {test}")
    if not ends and each.reason:
        print(f"       no test: {each.reason}")
        return []
    if not ends:
        return [f"{each.id} has no test: write one that quotes the ID, or say why it needs none"]
    if bad := [str(test) for test, end in ends if end == "failed"]:
        return [f"{each.id} is broken: {', '.join(bad)}"]
    if outcomes and not any(end in GOOD for _, end in ends):
        return [f"{each.id} is not proven: its tests did not run or were skipped"]
    return []


def main() -> None:
    lists = rules(RULES.read_text())
    faults = report(lists)
    count = sum(map(len, lists.values()))
    print()
    for fault in faults:
        print(f"trace: {fault}")
    print(f"trace: {count} rules, {len(faults)} faults")
    sys.exit(bool(faults) or not count)


if __name__ == "__main__":
    main()
