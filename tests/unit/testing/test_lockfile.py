from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.testing.common.errors import LocalClusterError
from pyclient.testing.lockfile import DEFAULT_VERSION, ROOTS, Jar, load_lock, parse_lock, render_lock

words = st.text("abcdefghij.-_0123456789", min_size=1, max_size=12)
jars = st.builds(Jar, words, words, words, st.text("0123456789abcdef", min_size=64, max_size=64))


@pytest.mark.parametrize("version", ROOTS)
def test_each_version_has_a_lock_with_its_broker_and_tools(version: str) -> None:
    artifacts = {(jar.group, jar.artifact, jar.version) for jar in load_lock(version).jars}
    assert {tuple(root.split(":")) for root in ROOTS[version]} <= artifacts


@pytest.mark.parametrize("version", ROOTS)
def test_no_two_jars_of_a_lock_share_a_file_name(version: str) -> None:
    names = [jar.name for jar in load_lock(version).jars]
    assert len(names) == len(set(names))


@given(st.lists(jars, max_size=8))
def test_a_rendered_lock_reads_back_the_same(some: list[Jar]) -> None:
    assert sorted(parse_lock("x", render_lock("x", some)).jars) == sorted(some)


@given(st.lists(jars, min_size=1, max_size=8, unique=True), st.randoms())
def test_the_digest_depends_on_content_not_on_order(some: list[Jar], chance: object) -> None:
    digest = parse_lock("x", render_lock("x", some)).digest
    assert parse_lock("x", render_lock("x", some[::-1])).digest == digest
    assert parse_lock("x", render_lock("x", [*some[1:], some[0]._replace(artifact="another")])).digest != digest


@pytest.mark.parametrize("line", ["group:artifact:1.0", "group:artifact " + "0" * 64, "group:artifact:1.0 abc"])
def test_a_malformed_line_is_named_in_the_error(line: str) -> None:
    with pytest.raises(LocalClusterError, match=line.partition(" ")[0]):
        parse_lock("9.9", line)


def test_an_unknown_version_names_the_known_ones() -> None:
    with pytest.raises(LocalClusterError, match=f"only {DEFAULT_VERSION} and 3.9.1"):
        load_lock("2.0.0")
