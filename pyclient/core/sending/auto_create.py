"""Whether a cluster creates topics by itself: asked of a broker when a topic stays unknown, told in the error. Pure."""
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
    """What is known of it. A broker tells only who may describe its configuration."""

    enabled: bool | None = None
    _why_unknown: str = "no broker was asked in this time"

    def call(self, node: int, deadline: float) -> Call:
        """Ask this broker."""
        self._why_unknown = f"node {node} was asked and has not answered in time"
        resource = {"resource_type": BROKER_RESOURCE, "resource_name": str(node), "configuration_keys": [SETTING]}
        fields: dict[str, object] = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        return Call(what=f"asking node {node} for {SETTING}", api=Api.DESCRIBE_CONFIGS, target=Broker(node),
                    fields=lambda _: fields, judge=_judge, finish=self._told, deadline=deadline)

    def _told(self, enabled: bool | None, error: BaseException | None) -> None:
        if isinstance(error, KafkaTimeoutError):
            return  # what was said when it was asked is still true
        self.enabled = enabled
        self._why_unknown = str(error) if error is not None else "the broker left it out"

    def sentence(self) -> str:
        """For whoever waits for a topic that is not there."""
        match self.enabled:
            case None:
                return f"Whether this cluster creates topics by itself is not known: {self._why_unknown.rstrip('.')}."
            case True:
                return f"This cluster creates topics by itself ({SETTING}=true), but has not created this one: see the brokers' logs."
            case False:
                return f"This cluster does not create topics by itself ({SETTING}=false)."


def _judge(message: Any) -> CallOutcome:
    result = message.results[0]
    if result.error_code:
        return error_of(Api.DESCRIBE_CONFIGS, result.error_code, result.error_message)
    told = next((config.value for config in result.configs if config.name == SETTING), None)
    return Done({"true": True, "false": False}.get(told or ""))
