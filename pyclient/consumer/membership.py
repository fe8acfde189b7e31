"""Creates the group member that a consumer's options describe."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyclient.config import ConsumerConfig
from pyclient.core.group.classic_member import ClassicMember
from pyclient.core.group.consumer_member import ConsumerMember
from pyclient.core.group.leader import GroupLeader
from pyclient.core.group.coordinator import GroupOptions
from pyclient.core.group.membership import Membership
from pyclient.core.group.assignors import GroupAssignors
from pyclient.plugin_loading import load_plugin
from pyclient.client.core import ClientCore
from pyclient.runtime.offload import Offload

USUAL_ASSIGNORS = ("range", "cooperative-sticky")


def membership(core: ClientCore, config: ConsumerConfig, group_id: str, offload: Offload, notify_user: Callable[[], Any]) -> Membership:
    """The member of group *group_id*. *notify_user* is called when the user's thread has something to do.

    Raises:
        ConfigurationError: an assignor is not installed, or two of them cannot be combined.
    """
    options = _options(config, group_id)
    if config.group_protocol == "consumer":
        return ConsumerMember(options, core.calls, core.metadata, random=core.random, backoff=core.backoff, notify_user=notify_user)
    assignors = GroupAssignors([load_plugin("assignor", each) for each in config.assignors or USUAL_ASSIGNORS], options.rack)
    leader = GroupLeader(options, assignors, core.calls, core.metadata, offload.run)
    return ClassicMember(options, assignors, core.calls, core.metadata, leader, backoff=core.backoff, notify_user=notify_user)


def _options(config: ConsumerConfig, group_id: str) -> GroupOptions:
    return GroupOptions(
        group_id=group_id, instance_id=config.group_instance_id, session_timeout=config.session_timeout_ms / 1000,
        heartbeat_interval=config.heartbeat_interval_ms / 1000, rebalance_timeout=config.max_poll_interval_ms / 1000,
        request_timeout=config.request_timeout_ms / 1000, rack=config.client_rack or None, remote_assignor=config.group_remote_assignor)
