"""Parses lists of broker addresses. Independent of DNS: names stay names."""
from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final, NamedTuple


LAST_PORT: Final = 65_535
LONGEST_HOST: Final = 255
"""Characters of a name (RFC 1035)."""


class Address(NamedTuple):
    """Where a broker listens. ``str(address)`` is what `parse_addresses` reads, IPv6 in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(value: object) -> tuple[Address, ...]:
    """Read ``"host:9092,[::1]:9093"``, a list of such texts, or (host, port) pairs. Order is kept, repeats are dropped.

    A listener name in front (``PLAINTEXT://host:9092``) is allowed and ignored, as in Java's client.

    Raises:
        ValueError: a text is not an address; says which and why.
    """
    found = [_address(part) for part in _parts(value)]
    return tuple(dict.fromkeys(found))


def is_usable(host: str, port: int) -> bool:
    """Whether a client may connect to an address that a broker advertises; system calls accept more, and cut ports."""
    return _is_host(host) and len(host) <= LONGEST_HOST and 1 <= port <= LAST_PORT


def is_loopback(host: str) -> bool:
    """Whether *host* is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Address) or not isinstance(value, Iterable) or isinstance(value, bytes):
        return [value]
    return [part for item in value for part in (_parts(item) if isinstance(item, str) else [item])]


def _address(part: object) -> Address:
    if isinstance(part, str):
        return _address_of_text(part)
    if isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str) and isinstance(part[1], int):
        text = f"{part[0]}:{part[1]}"
        return Address(_host(part[0].strip("[]"), text), _port(str(part[1]), text))
    raise ValueError(f"{part!r} is not an address: write 'host:port', several separated by commas or in a list")


def _address_of_text(text: str) -> Address:
    rest = text.split("://", 1)[-1]
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        raise ValueError(f"{text!r} has no port: write '{rest}:9092' (9092 is the usual one)")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is ambiguous: put an IPv6 address in brackets, '[::1]:9092'")
    return Address(_host(host, text), _port(port, text))


def _host(host: str, text: str) -> str:
    if not _is_host(host):
        raise ValueError(f"{text!r} has no usable host name: write 'host:port'")
    return host


def _is_host(host: str) -> bool:
    return bool(host) and host.isprintable() and not any(sign in " /[]" for sign in host)


def _port(port: str, text: str) -> int:
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= LAST_PORT):
        raise ValueError(f"{text!r} has port {port!r}: a port is a number from 1 to 65535")
    return int(port)
