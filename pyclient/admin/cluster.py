"""The cluster: its id, brokers and controller; features; the quorum of controllers."""
from __future__ import annotations

from pyclient.admin.calls import AsyncCalls, BlockingCalls
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.cluster import describe_features_call, describe_quorum_call
from pyclient.descriptions.cluster import FeatureRange, Quorum
from pyclient.net.connect import CLIENT_INFO
from pyclient.records import ClusterDescription


class AsyncClusterCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern the cluster."""

    async def describe_cluster(self, *, timeout: float | None = OPTION) -> ClusterDescription:
        """The cluster's id, brokers and controller."""
        cluster = await self._describe([], timeout)
        return ClusterDescription(cluster.id, tuple(cluster.nodes.values()), cluster.controller)

    async def describe_features(self, *, timeout: float | None = OPTION) -> dict[str, FeatureRange]:
        """The features of the cluster by name (KIP-584), such as ``metadata.version`` and ``transaction.version``.

        Raises:
            UnsupportedVersionError: the brokers have no features (before 2.7).
        """
        found: dict[str, FeatureRange] = await self._core.call(
            lambda finish, deadline: describe_features_call(CLIENT_INFO, finish=finish, deadline=deadline), self._limit(timeout))
        return dict(sorted(found.items()))

    async def describe_quorum(self, *, timeout: float | None = OPTION) -> Quorum:
        """The controllers that vote on the metadata log, how far each is, and the brokers that follow (KIP-836).

        Raises:
            ClusterAuthorizationError, UnsupportedVersionError (a cluster with ZooKeeper).
        """
        found: Quorum = await self._core.call(lambda finish, deadline: describe_quorum_call(finish=finish, deadline=deadline), self._limit(timeout))
        return found


class ClusterCalls(BlockingCalls):
    """Calls of `Admin` that concern the cluster."""

    _admin: AsyncClusterCalls

    def describe_cluster(self, *, timeout: float | None = OPTION) -> ClusterDescription:
        """As `AsyncAdmin.describe_cluster`."""
        return self._call(lambda: self._admin.describe_cluster(timeout=timeout))

    def describe_features(self, *, timeout: float | None = OPTION) -> dict[str, FeatureRange]:
        """As `AsyncAdmin.describe_features`."""
        return self._call(lambda: self._admin.describe_features(timeout=timeout))

    def describe_quorum(self, *, timeout: float | None = OPTION) -> Quorum:
        """As `AsyncAdmin.describe_quorum`."""
        return self._call(lambda: self._admin.describe_quorum(timeout=timeout))
