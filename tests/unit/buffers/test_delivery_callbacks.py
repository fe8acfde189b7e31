"""Callbacks of deliveries: each is checked when it is first given, and what was accepted is remembered."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pyclient.buffers.delivery_callbacks import checked_callback
from pyclient.foreign_calls import check_on_delivery


def closures() -> Callable[[], Any]:
    def give() -> Any:
        seen: list[object] = []
        return lambda delivery: seen.append((delivery, "sent"))

    return give


def methods() -> Callable[[], Any]:
    class Orders:
        def sent(self, delivery: object) -> None: ...

    return lambda: Orders().sent


def partials() -> Callable[[], Any]:
    def sent(order: int, delivery: object) -> None: ...

    return lambda: partial(sent, 7)


def partials_of_methods() -> Callable[[], Any]:
    class Orders:
        def sent(self, order: int, delivery: object) -> None: ...

    return lambda: partial(Orders().sent, 7)


def objects() -> Callable[[], Any]:
    class Sent:
        def __call__(self, delivery: object) -> None: ...

    return Sent


@pytest.mark.parametrize("kind", [closures, methods, partials, partials_of_methods, objects])
def test_a_callback_is_checked_once_however_often_it_is_made(kind: Callable[[], Callable[[], Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []

    def count(callback: object) -> None:
        checked.append(callback)
        check_on_delivery(callback)

    monkeypatch.setattr("pyclient.buffers.delivery_callbacks.check_on_delivery", count)
    give = kind()
    for callback in (give(), give(), give()):
        assert checked_callback(callback) is callback
    assert len(checked) == 1


def test_what_was_accepted_bound_is_refused_unbound() -> None:
    class Orders:
        def sent(self, delivery: object) -> None: ...

    def sent(order: int, delivery: object) -> None: ...

    for accepted, refused in ((Orders().sent, Orders.sent), (partial(sent, 7), sent)):
        for _ in range(2):
            checked_callback(accepted)
            with pytest.raises(TypeError, match="err, msg"):
                checked_callback(refused)


def test_a_class_is_checked_whatever_class_was_accepted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []
    monkeypatch.setattr("pyclient.buffers.delivery_callbacks.check_on_delivery", checked.append)
    for callback in (int, str):
        checked_callback(callback)
    assert checked == [int, str]
