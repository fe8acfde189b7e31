from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient.testing import ports as ports_module
from pyclient.testing.common.errors import LocalClusterError
from pyclient.testing.ports import LOWEST_PORT, release_ports, reserve_ports


@contextlib.contextmanager
def reserved(count: int) -> Iterator[tuple[int, ...]]:
    ports = reserve_ports(count)
    try:
        yield ports
    finally:
        release_ports(ports)


def test_ports_are_distinct_free_and_below_the_ephemeral_range() -> None:
    with reserved(50) as ports:
        assert len(set(ports)) == 50
        ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        assert all(LOWEST_PORT <= port < ephemeral for port in ports)
        for port in ports:
            with socket.socket() as user:
                user.bind(("127.0.0.1", port))


def narrow(monkeypatch: pytest.MonkeyPatch) -> range:
    """Few enough ports that two drawers must meet."""
    monkeypatch.setattr(ports_module, "LOWEST_PORT", 31_000)
    monkeypatch.setattr(ports_module, "_upper_bound", lambda: 31_020)
    return range(31_000, 31_020)


def test_a_reserved_port_is_not_drawn_again_until_released(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch)
    with reserved(8) as first, reserved(8) as second:
        assert not set(first) & set(second)
    with reserved(15) as later:
        assert set(later) & {*first, *second}


def test_a_port_in_use_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as held:
        used = set()
        for port in list(narrow(monkeypatch))[:10]:
            user = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                user.bind(("127.0.0.1", port))
                user.listen()
            used.add(port)
        with reserved(5) as drawn:
            assert not used & set(drawn)


DRAW = """
import sys
from pyclient.testing import ports
ports.LOWEST_PORT, ports._upper_bound = 31_000, lambda: 31_020
print(*ports.reserve_ports(8), flush=True)
sys.stdin.read()
"""


def test_another_processs_reservation_holds_while_it_lives_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch)
    with subprocess.Popen([sys.executable, "-c", DRAW], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        assert len(theirs) == 8
        with reserved(8) as ours:
            assert not theirs & set(ours)
        other.kill()
    with reserved(15) as later:
        assert theirs & set(later)


def test_running_out_of_ports_names_the_range_and_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch)
    with pytest.raises(LocalClusterError, match="between 31000 and 31020"):
        reserve_ports(21)
    with reserved(10):
        pass
