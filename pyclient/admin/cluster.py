"""The cluster: its id, brokers and controller."""
from __future__ import annotations

from pyclient.admin.calls import AsyncCalls, BlockingCalls
from pyclient.client.facade_base import OPTION
from pyclient.records import ClusterDescription


class AsyncClusterCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern the cluster."""

    async def describe_cluster(self, *, timeout: float | None = OPTION) -> ClusterDescription:
        """The cluster's id, brokers and controller."""
        cluster = await self._describe([], timeout)
        return ClusterDescription(cluster.id, tuple(cluster.nodes.values()), cluster.controller)


class ClusterCalls(BlockingCalls):
    """Calls of `Admin` that concern the cluster."""

    _admin: AsyncClusterCalls

    def describe_cluster(self, *, timeout: float | None = OPTION) -> ClusterDescription:
        """As `AsyncAdmin.describe_cluster`."""
        return self._call(lambda: self._admin.describe_cluster(timeout=timeout))
