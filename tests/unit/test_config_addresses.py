"""Broker addresses: how they are written, and what is said about wrong ones."""
from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.config import Address, ProducerConfig, parse_addresses
from pyclient.errors import ConfigurationError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a:1", [("a", 1)]), (" a:1 , b.example.org:65535,", [("a", 1), ("b.example.org", 65535)]), ("[::1]:9092", [("::1", 9092)]),
        ("[fe80::1%eth0]:9092", [("fe80::1%eth0", 9092)]), (["a:1", "b:2,c:3"], [("a", 1), ("b", 2), ("c", 3)]),
        ([("a", 1), "b:2"], [("a", 1), ("b", 2)]), (("a:1", "a:1"), [("a", 1)]), ("PLAINTEXT://a:1", [("a", 1)]),
        (Address("a", 1), [("a", 1)]), ("", []), ([], []), ("127.0.0.1:9092", [("127.0.0.1", 9092)]),
    ],
)
def test_every_usual_way_to_write_addresses_is_read(written: object, meant: list[tuple[str, int]]) -> None:
    assert parse_addresses(written) == tuple(Address(*each) for each in meant)


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("localhost", "'localhost' has no port: write 'localhost:9092'"), ("a:1,b", "'b' has no port"), ("[::1]", "has no port"),
        ("::1:9092", "put an IPv6 address in brackets"), ("a:0", "a number from 1 to 65535"), ("a:65536", "a number from 1 to 65535"),
        ("a:x", "port 'x'"), ("a:-1", "a number from 1 to 65535"), ("a:²", "a number from 1 to 65535"), (":9092", "no usable host"),
        ("a b:1", "no usable host"), ("http://a:1/x", "port '1/x'"), (3, "is not an address"), ([None], "is not an address"), (b"a:1", "is not an address"),
        ([("a", "1")], "is not an address"), ([("", 1)], "no usable host"), ([("a b", 1)], "no usable host"), ("a\0b:1", "no usable host"),
    ],
)
def test_a_wrong_address_is_shown_with_its_fault(written: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse_addresses(written)
    with pytest.raises(ConfigurationError, match=r"^bootstrap_servers"):
        ProducerConfig.parse({"bootstrap.servers": written})


hosts = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True) | st.ip_addresses().map(str)


@given(st.lists(st.builds(Address, hosts, st.integers(1, 65535)), unique=True))
def test_what_an_address_prints_is_read_as_that_address(addresses: list[Address]) -> None:
    assert parse_addresses(",".join(map(str, addresses))) == tuple(addresses)
    assert parse_addresses(addresses) == tuple(addresses)


@given(st.text())
def test_any_text_is_addresses_or_a_value_error(text: str) -> None:
    try:
        found = parse_addresses(text)
    except ValueError:
        return
    assert all(each.host and 1 <= each.port <= 65535 for each in found)
