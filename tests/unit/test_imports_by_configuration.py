"""Configuration is data: it imports code only from modules that a keyword or the environment allows."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pyclient import Producer
from pyclient.config import AdminConfig, ConsumerConfig, ProducerConfig
from pyclient.config.declaration import Config
from pyclient.errors import ConfigurationError
from pyclient.plugin_loading import load_plugin
from pyclient.testing import FakeCluster

PRODUCER = ["partitioner", "partitioner.class", "key.serializer", "value_serializer", "serializer.class", "interceptor.classes", "sasl.mechanism", "sasl_token_provider"]
CONSUMER = ["partition.assignment.strategy", "key.deserializer", "value_deserializer", "interceptors"]
EVIL = "evil_module.of_a_form:Anything"


@pytest.mark.parametrize(("config", "option"), [*((ProducerConfig, each) for each in PRODUCER), *((ConsumerConfig, each) for each in CONSUMER),
                                                (AdminConfig, "sasl.mechanism")])
@pytest.mark.filterwarnings("ignore::pyclient.config.OptionWarning")
def test_data_import_nothing_and_the_error_names_both_ways_to_allow_it(config: type[Config], option: str) -> None:
    with pytest.raises(ConfigurationError, match=r"allow_imports=\['evil_module\.of_a_form'\], or PYCLIENT_ALLOW_IMPORTS=evil_module\.of_a_form") as caught:
        config.parse({option: EVIL})
    assert caught.value.option in {each.name for each in config.fields()}
    config.parse({option: EVIL}, {"allow_imports": "other, evil_module"})


def test_every_option_that_takes_a_path_to_import_is_guarded() -> None:
    for config in (ProducerConfig, ConsumerConfig, AdminConfig):
        for option in config.fields():
            assert option.kind.imports == ("package.module:" in option.range or option.name == "sasl_mechanism"), option.name


def test_one_of_several_plugins_is_enough_to_refuse_them() -> None:
    for several in (f"range, {EVIL}", ["range", EVIL]):
        with pytest.raises(ConfigurationError, match="evil_module"):
            ConsumerConfig.parse({"assignors": several})


def test_registered_names_and_objects_need_no_permission() -> None:
    partitioner = object()
    assert ProducerConfig.parse({"partitioner": "murmur2", "value.serializer": "json"}).partitioner == "murmur2"
    assert ProducerConfig.parse({"partitioner": partitioner}).partitioner is partitioner


def test_keywords_import_and_win_over_data() -> None:
    assert ProducerConfig.parse({}, {"partitioner": EVIL}).partitioner == EVIL
    assert ProducerConfig.parse({"partitioner": EVIL}, {"partitioner": "murmur2"}).partitioner == "murmur2"


def test_a_keyword_whose_value_a_config_provider_has_is_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHOSEN", EVIL)
    with pytest.raises(ConfigurationError, match="would import evil_module"):
        ProducerConfig.parse({"config.providers": "env"}, {"partitioner": "${env:CHOSEN}"})
    with pytest.raises(ConfigurationError, match="allow_imports is set by the configuration that it is to limit"):
        ProducerConfig.parse({"config.providers": "env"}, {"allow_imports": "${env:CHOSEN}"})


def test_data_cannot_allow_themselves() -> None:
    with pytest.raises(ConfigurationError, match="PYCLIENT_ALLOW_IMPORTS"):
        ProducerConfig.parse({"allow.imports": "evil_module", "partitioner": EVIL})


@pytest.mark.parametrize(("allowed", "imports"), [("evil_module", True), ("a,evil_module.of_a_form", True), ("evil", False), ("evil_module.of", False), ("", False)])
def test_the_environment_allows_a_module_and_what_is_inside_of_it(monkeypatch: pytest.MonkeyPatch, allowed: str, imports: bool) -> None:
    monkeypatch.setenv("PYCLIENT_ALLOW_IMPORTS", allowed)
    if imports:
        assert ProducerConfig.parse({"partitioner": EVIL}).partitioner == EVIL
    else:
        with pytest.raises(ConfigurationError):
            ProducerConfig.parse({"partitioner": EVIL})


def test_a_secret_that_was_given_by_mistake_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ProducerConfig.parse({"sasl_token_provider": "eyJ-hbGci/x:secret"})
    assert "eyJ" not in str(caught.value)
    assert "secret" not in str(caught.value).replace("secret text", "")


def test_an_allowed_module_does_not_lead_to_the_modules_that_it_imported() -> None:
    with pytest.raises(ConfigurationError, match="'sys' is a module there"):
        load_plugin("partitioner", f"{__name__}:sys.exit")


def test_nothing_of_a_refused_module_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_cluster: FakeCluster) -> None:
    tmp_path.joinpath("module_of_a_form.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError):
        Producer({"bootstrap.servers": fake_cluster.bootstrap_servers, "value.serializer": "module_of_a_form:Serde"})
    assert "module_of_a_form" not in sys.modules
