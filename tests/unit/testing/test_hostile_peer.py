"""Every row of the table of attacks, on each kind of client that it names, sync and async: no bound is broken."""
from __future__ import annotations

import logging
from typing import Any

import attrs
import pytest

from pyclient.testing.__main__ import main
from pyclient.codec.apis import Api
from pyclient.testing.fake.control import Bytes, Delay
from pyclient.testing.hostile.attacks import ATTACKS, PASSWORD, Attack, Bounds, Client, always, every
from pyclient.testing.hostile.run import Cost, run
from pyclient.testing.hostile.tls import of_another_host, shows

ROW = Attack(name="row", clients=(Client.ADMIN,), start=always(Bytes(b"")))
COST = Cost(requests={"admin-sync": 25}, seconds=0.0, memory_mib=1.0, lines=("a warning",), wrong=())


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_costs_no_client_more_than_its_bounds(attack: Attack) -> None:
    cost = run(attack)
    assert cost.beyond(attack) == []
    assert cost.requests


def test_a_client_that_goes_on_behind_a_login_that_is_none_is_said() -> None:
    honest = Attack(name="row", clients=(Client.ADMIN,), start=always(Delay(0.0), Api.METADATA), logs_in=True, mechanism="SCRAM-SHA-256", refuses=True)
    assert any("METADATA behind a login that is none" in said for said in run(honest).beyond(honest))


def test_a_client_that_sends_to_a_peer_that_has_proved_nothing_is_said() -> None:
    credulous = {"ssl_endpoint_identification_algorithm": ""}
    row = Attack(name="row", clients=(Client.ADMIN,), logs_in=True, peer=shows(of_another_host), options=credulous)
    assert any("bytes sent to a peer that has not proved who it is" in said for said in run(row).beyond(row))


def test_names_are_different() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize(("change", "says"), [
    ({"requests": {"admin-sync": 26}}, "admin-sync: 26 requests in 0.0 s; at most 25"),
    ({"memory_mib": 49.0}, "49 MiB of memory; at most 48"),
    ({"lines": ("x",) * 13}, "13 lines in the log; at most 12: 'x'"),
    ({"seconds": 21.0}, "21.0 s; at most 20"),
    ({"lines": ("a\nb",)}, "a line in the log that is not harmless: 'a\\nb'"),
    ({"lines": ("x" * 2001,)}, "a line in the log that is not harmless"),
    ({"lines": (f"for {PASSWORD}",)}, "a line in the log that is not harmless"),
    ({"wrong": ("TypeError",)}, "TypeError"),
], ids=range(8))
def test_a_cost_beyond_a_bound_is_said(change: dict[str, Any], says: str) -> None:
    assert COST.beyond(ROW) == []
    (said,) = attrs.evolve(COST, **change).beyond(ROW)
    assert said.startswith(says)


def test_the_command_runs_chosen_attacks_and_fails_when_a_bound_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Attack(name="noise", clients=(Client.ADMIN,), start=every(Bytes(b"\xff" * 9)), bounds=Bounds(requests=0, requests_per_second=0)),
            Attack(name="another", clients=(Client.ADMIN,), start=every(Bytes(b"\xff" * 9)))]
    monkeypatch.setattr("pyclient.testing.hostile.attacks.ATTACKS", rows)
    assert main(["hostile", "another"]) == 0
    assert main(["hostile", "noise"]) == 1
    shown = capsys.readouterr()
    assert "admin-sync: " in shown.out
    assert "1 attacks cost a client more than their bounds" in shown.err
    assert logging.getLogger("pyclient").propagate, "the command leaves logging as it was"
