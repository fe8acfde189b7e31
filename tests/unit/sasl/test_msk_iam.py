"""AWS_MSK_IAM: which identity signs, for which region, and what is sent. Signing needs no network."""
from __future__ import annotations

import base64
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pyclient import foreign_options
from pyclient.config import ProducerConfig
from pyclient.errors import ConfigurationError, TokenUnavailableError
from pyclient.foreign_options import OptionWarning
from pyclient.sasl.msk_iam import MskIam
from tests.unit.sasl.exchanges import exchanged, options

SECRET = "marker-aws-secret"
IAM = "software.amazon.msk.auth.iam."


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials in a file alone; nothing of this machine's, and no metadata service."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id = AKDEFAULT\naws_secret_access_key = {SECRET}\n"
                                          f"[night]\naws_access_key_id = AKNIGHT\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(foreign_options, "_warned", set())


def signed(mechanism: MskIam | None = None, **given: Any) -> tuple[str, dict[str, list[str]]]:
    """Host and query of the URL that is sent as the token."""
    first, = exchanged(mechanism or MskIam(), options(**given), lambda message: b"")
    assert first.startswith(b"n,,\x01auth=Bearer ")
    assert SECRET.encode() not in first
    token = first.removeprefix(b"n,,\x01auth=Bearer ").removesuffix(b"\x01\x01")
    url = urlsplit(base64.urlsafe_b64decode(token + b"=" * (-len(token) % 4)).decode())
    return url.netloc, parse_qs(url.query)


def test_the_token_is_a_url_for_the_region_signed_by_the_default_credentials() -> None:
    host, query = signed(sasl_aws_msk_iam_region="eu-west-1")
    assert host == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKDEFAULT/")
    assert query["X-Amz-Credential"][0].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert query["X-Amz-Expires"] == ["900"]
    assert len(query["X-Amz-Signature"][0]) == 64


def test_a_profile_signs_if_one_is_chosen() -> None:
    _, query = signed(sasl_aws_msk_iam_region="eu-west-1", sasl_aws_msk_iam_profile="night")
    assert query["X-Amz-Credential"][0].startswith("AKNIGHT/")


def test_a_role_is_assumed_if_one_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    asked: list[tuple[object, ...]] = []

    def assume(*given: object) -> tuple[str, int]:
        asked.append(given)
        return "c2lnbmVk", round(time.time() + 900) * 1000

    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token_from_role_arn", assume)
    role: dict[str, Any] = {"sasl_aws_msk_iam_region": "eu-west-1", "sasl_aws_msk_iam_role_arn": "arn:aws:iam::1:role/orders"}
    assert exchanged(MskIam(), options(**role), lambda message: b"") == [b"n,,\x01auth=Bearer c2lnbmVk\x01\x01"]
    exchanged(MskIam(), options(**role, sasl_aws_msk_iam_role_session_name="night"), lambda message: b"")
    assert asked == [("eu-west-1", "arn:aws:iam::1:role/orders"), ("eu-west-1", "arn:aws:iam::1:role/orders", "night")]


@pytest.mark.parametrize(("broker", "region"), [
    ("b-1.orders.a1b2c3.c2.kafka.eu-central-1.amazonaws.com", "eu-central-1"), ("boot-x.c1.kafka-serverless.us-east-2.amazonaws.com", "us-east-2"),
    ("b-1.orders.a1b2c3.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"), ("broker-1", "sa-east-1"),
])
def test_the_region_is_that_of_the_brokers_names_or_of_the_environment(broker: str, region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    assert signed(bootstrap_servers=f"{broker}:9098")[0] == f"kafka.{region}.amazonaws.com"
    assert signed(bootstrap_servers=f"{broker}:9098", sasl_aws_msk_iam_region="us-west-1")[0] == "kafka.us-west-1.amazonaws.com"


def test_a_token_is_used_again_until_it_expires() -> None:
    mechanism, given = MskIam(), options(sasl_aws_msk_iam_region="eu-west-1")
    assert exchanged(mechanism, given, lambda message: b"") == exchanged(mechanism, given, lambda message: b"")


@pytest.mark.parametrize(("given", "option"), [
    ({}, "sasl_aws_msk_iam_region"), ({"sasl_aws_msk_iam_profile": "a", "sasl_aws_msk_iam_role_arn": "b"}, "sasl_aws_msk_iam_profile"),
    ({"sasl_aws_msk_iam_role_session_name": "a"}, "sasl_aws_msk_iam_role_arn"),
], ids=["no region", "two identities", "a session of no role"])
def test_wrong_options_are_refused_when_the_client_is_created(given: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        MskIam().check(options(**given))
    assert caught.value.option == option


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pyclient-kafka\[aws\]'"):
        MskIam().check(options(sasl_aws_msk_iam_region="eu-west-1"))


def test_missing_credentials_are_named_and_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(TokenUnavailableError, match="no AWS credentials were found"):
        signed(sasl_aws_msk_iam_region="eu-west-1")
    with pytest.raises(TokenUnavailableError, match="ProfileNotFound"):
        signed(sasl_aws_msk_iam_region="eu-west-1", sasl_aws_msk_iam_profile="day")


@pytest.mark.parametrize(("line", "profile", "role", "session"), [
    ("", None, None, None), (' awsProfileName="night"', "night", None, None),
    (' awsRoleArn="arn:aws:iam::1:role/x" awsRoleSessionName=me', None, "arn:aws:iam::1:role/x", "me"),
])
def test_javas_settings_can_be_pasted(line: str, profile: str | None, role: str | None, session: str | None) -> None:
    with pytest.warns(OptionWarning):
        config = ProducerConfig.parse({
            "security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": f"{IAM}IAMLoginModule required{line};",
            "sasl.client.callback.handler.class": f"{IAM}IAMClientCallbackHandler"})
    assert (config.sasl_aws_msk_iam_profile, config.sasl_aws_msk_iam_role_arn, config.sasl_aws_msk_iam_role_session_name) == (profile, role, session)


def test_an_unknown_setting_of_javas_module_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"awsStsRegion of IAMLoginModule cannot be used here"):
        ProducerConfig.parse({"sasl.jaas.config": f'{IAM}IAMLoginModule required awsStsRegion="eu-west-1";'})
