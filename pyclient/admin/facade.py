"""`Admin` and `AsyncAdmin`: their calls are in the modules beside this one, by kind."""
from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from pyclient.admin.acls import AclCalls, AsyncAclCalls
from pyclient.admin.cluster import AsyncClusterCalls, ClusterCalls
from pyclient.admin.configs import ConfigCalls
from pyclient.admin.groups import AsyncGroupCalls, GroupCalls
from pyclient.admin.plans import AsyncPlanCalls, PlanCalls
from pyclient.admin.records import RecordCalls
from pyclient.admin.replicas import ReplicaCalls
from pyclient.admin.topics import TopicCalls
from pyclient.admin.transactions import AsyncTransactionCalls, TransactionCalls
from pyclient.admin.tokens import AsyncTokenCalls, TokenCalls
from pyclient.admin.users import AsyncUserCalls, UserCalls
from pyclient.client.core import ClientCore
from pyclient.config import AdminConfig
from pyclient.config.declaration import with_hidden_secrets
from pyclient.foreign_calls import answers_foreign_calls
from pyclient.held_lock import Held
from pyclient.runtime.environment import loop_reactor, thread_reactor
from pyclient.runtime.portals import LoopPortal, ThreadPortal

if TYPE_CHECKING:
    from pyclient.option_types import AdminOptions


@answers_foreign_calls("admin")
class AsyncAdmin(AsyncPlanCalls, AsyncGroupCalls, AsyncTransactionCalls, AsyncAclCalls, AsyncUserCalls, AsyncTokenCalls, AsyncClusterCalls, calls=False):
    """Operations on topics, configs, records, groups, transactions, ACLs, users, replicas and the cluster; for asyncio.

    Bound to the event loop of ``async with``. Any number of tasks may use it at the same time. A call with one item
    raises that item's error; a call with several tries all of them and raises `PartialFailureError`.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        """An admin client with these options.

        *config* has options by Kafka's dotted names; *options* are the same ones in snake_case, and win. Those set
        most often: ``bootstrap_servers``, ``security_protocol``, ``client_id``, ``default_api_timeout_ms``.
        ``help('pyclient.option_types.AdminOptions')`` has all of them.

        With asyncio, ``async with`` or `start` opens it.

        Raises:
            ConfigurationError: an option that is unknown, of a wrong type or out of range.
            UnsupportedFeatureError: an option of a later release.
        """
        config, options = with_hidden_secrets(config), with_hidden_secrets(options)
        self._make(LoopPortal("admin", loop_reactor()), AdminConfig.parse(config, {**options}))

    def _make(self, portal: LoopPortal | ThreadPortal, config: AdminConfig) -> None:
        if isinstance(portal, LoopPortal):
            self._portal = portal
        self._config = config
        self._core = ClientCore(config, portal)

    def metrics(self) -> dict[str, float]:
        """The current metrics, by Kafka's names. Never waits."""
        return self._core.metric_values()

    async def close(self) -> None:
        """Close the client; calls under way raise ClientClosedError. Idempotent."""
        self._core.check_process()
        await self._portal.close(self._core.close, closed=self._core.closed is not None)

    async def start(self) -> Self:
        """Open it, as ``async with`` does; `stop` closes it again."""
        return await self.__aenter__()

    async def stop(self) -> None:
        """`close` by another name."""
        await self.close()

    async def __aenter__(self) -> Self:
        await self._portal.open(self._core.start)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._core.is_forked:
            await self.close()


@answers_foreign_calls("admin")
class Admin(TopicCalls, ConfigCalls, RecordCalls, GroupCalls, TransactionCalls, AclCalls, UserCalls, TokenCalls, ReplicaCalls, PlanCalls, ClusterCalls):
    """Operations on topics, configs, records, groups, transactions, ACLs, users, replicas and the cluster.

    As `AsyncAdmin`, but its calls block.

    Any number of threads may use it at the same time."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        """An admin client with these options.

        *config* has options by Kafka's dotted names; *options* are the same ones in snake_case, and win. Those set
        most often: ``bootstrap_servers``, ``security_protocol``, ``client_id``, ``default_api_timeout_ms``.
        ``help('pyclient.option_types.AdminOptions')`` has all of them.

        With threads, this opens it.

        Raises:
            ConfigurationError: an option that is unknown, of a wrong type or out of range.
            UnsupportedFeatureError: an option of a later release.
        """
        config, options = with_hidden_secrets(config), with_hidden_secrets(options)
        self._portal = ThreadPortal("pyclient-admin", thread_reactor())
        self._admin: AsyncAdmin = AsyncAdmin.__new__(AsyncAdmin)
        self._admin._make(self._portal, AdminConfig.parse(config, {**options}))
        self._core = self._admin._core
        self._closing = threading.Lock()
        self._portal.start()
        self._portal.call(self._core.start)

    def metrics(self) -> dict[str, float]:
        """The current metrics, by Kafka's names. Never waits."""
        return self._admin.metrics()

    def close(self) -> None:
        """Close the client; calls under way raise ClientClosedError. Idempotent."""
        self._core.check_process()
        with Held(self._closing):
            self._portal.end(self._core.close)

    def __enter__(self) -> Self:
        self._open_core()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._core.is_forked:
            self.close()

    def _forget(self) -> None:
        self._portal.stop_after(self._core.close)
