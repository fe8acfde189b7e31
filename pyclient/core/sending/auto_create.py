"""Whether a cluster creates topics automatically.

Requested from a broker when a topic stays unknown, and named in the error.
"""
from __future__ import annotations

from typing import Any, Final

import attrs

from pyclient.codec.apis import Api
from pyclient.core.calls import Broker, Call, CallOutcome, Done
from pyclient.core.acl_errors import error_of
from pyclient.errors import KafkaTimeoutError

SETTING: Final = "auto.create.topics.enable"
BROKER_RESOURCE: Final = 4


@attrs.define
class TopicCreation:
    """What is known of the brokers' setting.

    A broker returns it only to clients that may describe its configuration.
    """

    enabled: bool | None = None
    _why_unknown: str = "no broker was asked within the time"

    def call(self, node: int, deadline: float) -> Call:
        """The request to this broker."""
        self._why_unknown = f"node {node} did not answer within the time"
        resource = {"resource_type": BROKER_RESOURCE, "resource_name": str(node), "configuration_keys": [SETTING]}
        fields: dict[str, object] = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        return Call(what=f"reading {SETTING} of node {node}", api=Api.DESCRIBE_CONFIGS, target=Broker(node),
                    fields=lambda _: fields, classify=_classify, finish=self._on_setting, deadline=deadline)

    def _on_setting(self, enabled: bool | None, error: BaseException | None) -> None:
        if isinstance(error, KafkaTimeoutError):
            return  # the reason set by `call` is still true
        self.enabled = enabled
        self._why_unknown = str(error) if error is not None else "the broker's answer leaves it out"

    def sentence(self) -> str:
        """For the error of a topic that stays unknown."""
        match self.enabled:
            case None:
                return f"Whether this cluster creates topics automatically is not known: {self._why_unknown.rstrip('.')}."
            case True:
                return f"This cluster creates topics automatically ({SETTING}=true), but has not created this one: see the brokers' logs."
            case False:
                return f"This cluster does not create topics automatically ({SETTING}=false)."


def _classify(message: Any) -> CallOutcome:
    result = message.results[0]
    if result.error_code:
        return error_of(Api.DESCRIBE_CONFIGS, result.error_code, result.error_message)
    value = next((config.value for config in result.configs if config.name == SETTING), None)
    return Done({"true": True, "false": False}.get(value or ""))
