"""What `help` says of the clients: every public method has a text of its own, which names each of its parameters."""
from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from tools.twin_texts import OWN, TWINS, filled, mentions, rewritten, text_of, text_of_twin, with_timeout
from pyclient.foreign_calls import Foreign
from pyclient.serializers.registry import AsyncSchemaRegistryClient, SchemaRegistryClient

CLIENTS: Final = (Producer, AsyncProducer, Consumer, AsyncConsumer, Admin, AsyncAdmin, SchemaRegistryClient, AsyncSchemaRegistryClient)
TWIN_CLASSES: Final = dict(zip(CLIENTS[::2], CLIENTS[1::2], strict=True))


def public(cls: type) -> Iterator[tuple[str, Any]]:
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if not (name.startswith("_") or isinstance(member, Foreign)):
            yield name, member


METHODS: Final = [(cls, name) for cls in CLIENTS for name, member in public(cls) if not isinstance(member, property)]
IDS: Final = [f"{cls.__name__}.{name}" for cls, name in METHODS]


@pytest.mark.parametrize(("cls", "name"), METHODS, ids=IDS)
def test_the_text_of_a_method_names_each_parameter(cls: type, name: str) -> None:
    method = getattr(cls, name)
    text = inspect.getdoc(method) or ""
    assert text
    assert "As `Async" not in text
    assert [each for each in list(inspect.signature(method).parameters)[1:] if not mentions(text, each)] == []


@pytest.mark.parametrize("cls", CLIENTS[:6], ids=lambda cls: cls.__name__)
def test_the_text_of_a_client_says_what_each_parameter_is_and_where_all_options_are(cls: Callable[..., object]) -> None:
    text = inspect.getdoc(cls.__init__) or ""
    assert [each for each in list(inspect.signature(cls).parameters) if not mentions(text, each)] == []
    assert "bootstrap_servers" in text
    assert "help('pyclient.option_types." in text


@pytest.mark.parametrize("cls", CLIENTS, ids=lambda cls: cls.__name__)
def test_every_attribute_of_a_client_has_a_text(cls: type) -> None:
    assert [name for name, member in public(cls) if not inspect.getdoc(member)] == []


@pytest.mark.parametrize(("one", "other"), TWIN_CLASSES.items(), ids=lambda cls: cls.__name__)
def test_methods_of_both_kinds_have_one_text_but_for_what_is_said_of_a_kind(one: type, other: type) -> None:
    both = {name for name, _ in public(one)} & {name for name, _ in public(other)}
    texts = {name: [common(inspect.getdoc(getattr(cls, name)) or "") for cls in (one, other)] for name in both}
    assert {name: pair for name, pair in texts.items() if pair[0] != pair[1]} == {}


def common(text: str) -> list[str]:
    return [part for part in text.split("\n\n") if not part.startswith(OWN)]


# ── the generator ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_twin_gets_the_text_and_keeps_what_is_its_own() -> None:
    theirs = "Do it.\n\nWith threads, it blocks.\n\nMore.\n\nRaises:\n    KafkaError: no."
    own = "Old.\n\nWith asyncio, it is awaited."
    assert text_of_twin(theirs, own) == "Do it.\n\nMore.\n\nWith asyncio, it is awaited.\n\nRaises:\n    KafkaError: no."


def test_a_timeout_is_explained_once_before_the_errors() -> None:
    method = ast.parse('def f(self, *, timeout=1.0):\n    """Do it.\n\n    Raises:\n        KafkaError: no.\n    """\n').body[0]
    assert isinstance(method, ast.FunctionDef)
    text = with_timeout(method)
    assert text.split("\n\n")[1].startswith("*timeout* is in seconds")
    assert text.endswith("KafkaError: no.")
    source = rewritten('class A:\n    def f(self, *, timeout=1.0):\n        """Do it."""\n        return 1', "A", {"f": text})
    again = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    assert with_timeout(again) == text == text_of(again)
    assert source.endswith('"""\n        return 1')


def test_a_method_without_a_text_gets_one_above_its_first_line() -> None:
    assert rewritten("class A:\n    def f(self):\n        return 1", "A", {"f": "Do it."}) == (
        'class A:\n    def f(self):\n        """Do it."""\n        return 1')


def test_only_paragraphs_that_are_too_wide_are_broken_again() -> None:
    short, wide = "a few\nwords", " ".join(["word"] * 40)
    text = filled(f"{wide}\n\n{short}\n\n{wide}\n\nRaises:\n    KafkaError: {wide}")
    first, second, third, errors = text.split("\n\n")
    assert (second, errors) == (short, f"Raises:\n    KafkaError: {wide}")
    assert max(map(len, f'"""{first}\n{third}'.split("\n"))) <= 112
    assert " ".join(first.split()) == wide


def test_twins_are_the_classes_of_the_clients() -> None:
    assert {(twins.source, twins.target) for twins in TWINS} >= {("Producer", "AsyncProducer"), ("Consumer", "AsyncConsumer"), ("AsyncAdmin", "Admin")}
