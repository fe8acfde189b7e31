"""The cluster: its id, brokers and controller; features; the quorum of controllers; brokers that are gone."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from pyclient.admin.calls import AsyncCalls, BlockingCalls, raise_failed
from pyclient.admin.given import brokers, mapping
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.cluster import (
    add_voter_call, describe_cluster_call, describe_controllers_call, describe_features_call, describe_quorum_call, remove_voter_call, unregister_broker_call,
    update_features_call,
)
from pyclient.descriptions.cluster import ClusterDescription, FeatureChange, FeatureRange, Quorum, VoterEndpoint
from pyclient.errors import UnsupportedEndpointTypeError
from pyclient.net.connect import CLIENT_INFO


class AsyncClusterCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern the cluster."""

    async def describe_cluster(self, *, include_authorized_operations: bool = False, include_fenced_brokers: bool = False,
                               timeout: float | None = OPTION) -> ClusterDescription:
        """The cluster's id, brokers and controller.

        With *include_authorized_operations* also what this client's user may do with the cluster; with
        *include_fenced_brokers* also brokers that are registered but fenced, as those that are shut down. Of
        ``bootstrap_controllers`` it has the controllers as nodes.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnsupportedVersionError: authorized operations of brokers before 2.8, fenced brokers before 4.0, controllers
                before 3.7. MismatchedEndpointTypeError: ``bootstrap_controllers`` leads to brokers.
        """
        if self._core.of_controllers:
            if include_fenced_brokers:
                raise UnsupportedEndpointTypeError("include_fenced_brokers needs brokers, and this admin is bound to controllers: open one with bootstrap_servers for it")
            controllers: ClusterDescription = await self._core.call(lambda finish, deadline: describe_controllers_call(
                operations=include_authorized_operations, finish=finish, deadline=deadline), self._limit(timeout))
            return controllers
        if include_authorized_operations or include_fenced_brokers:
            found: ClusterDescription = await self._core.call(lambda finish, deadline: describe_cluster_call(
                operations=include_authorized_operations, fenced=include_fenced_brokers, finish=finish, deadline=deadline), self._limit(timeout))
            return found
        cluster = await self._describe([], timeout)  # all brokers have it
        return ClusterDescription(cluster.id, tuple(cluster.nodes.values()), cluster.controller)

    async def describe_features(self, *, timeout: float | None = OPTION) -> dict[str, FeatureRange]:
        """The features of the cluster by name (KIP-584), such as ``metadata.version`` and ``transaction.version``.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnsupportedVersionError: the brokers have no features (before 2.7).
        """
        found: dict[str, FeatureRange] = await self._core.call(
            lambda finish, deadline: describe_features_call(CLIENT_INFO, finish=finish, deadline=deadline), self._limit(timeout))
        return dict(sorted(found.items()))

    async def update_features(self, levels: Mapping[str, int], change: FeatureChange = FeatureChange.UPGRADE, *, validate_only: bool = False,
                              timeout: float | None = OPTION) -> None:
        """Finalize *levels* of features by name, as ``kafka-features.sh upgrade`` and ``downgrade``; 0 switches one
        off.

        All of them change, or none; with *validate_only* none. A level that is finalized already is no change. Brokers
        learn of it a little later.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidUpdateVersionError: the feature or its level is unknown, lower (see *change*), or another feature
                needs the present one. ClusterAuthorizationError, UnsupportedVersionError (brokers before 3.3), …: for a
                single feature; PartialFailureError: for several, of brokers before 4.0.
        """
        wanted, kind, limit = _levels(levels), FeatureChange(change), self._limit(timeout)
        if wanted:
            raise_failed(list(wanted), await self._core.call(lambda finish, deadline: update_features_call(
                wanted, kind, validate_only=validate_only, timeout=self._broker_limit(limit), finish=finish, deadline=deadline), limit), what="feature")

    async def unregister_broker(self, node: int, *, timeout: float | None = OPTION) -> None:
        """Remove the broker *node*, which is shut down and does not come back, from the cluster's metadata (KIP-631).

        Brokers otherwise wait for it, for instance when features are updated. Its partitions must have been moved
        (`plan_without_brokers`). A broker that runs registers again.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            BrokerIdNotRegisteredError, ClusterAuthorizationError, UnsupportedVersionError (a cluster with ZooKeeper), …
        """
        gone, = brokers([node], "node")
        await self._core.call(lambda finish, deadline: unregister_broker_call(gone, finish=finish, deadline=deadline), self._limit(timeout))

    async def describe_quorum(self, *, timeout: float | None = OPTION) -> Quorum:
        """The controllers that vote on the metadata log, how far each is, and the brokers that follow (KIP-836).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, UnsupportedVersionError (a cluster with ZooKeeper).
        """
        found: Quorum = await self._core.call(lambda finish, deadline: describe_quorum_call(finish=finish, deadline=deadline), self._limit(timeout))
        return found

    async def add_raft_voter(self, voter: int, directory_id: UUID, endpoints: Iterable[VoterEndpoint], *, timeout: float | None = OPTION) -> None:
        """Let the controller *voter* vote on the metadata log: a node that follows it already (KIP-853).

        *directory_id* is that of its log directory, `describe_quorum` has it of observers; *endpoints* are its
        listeners for controllers. While it has not caught up, or another voter is being added or removed, this
        retries. When an answer is lost, the retry may raise DuplicateVoterError: `describe_quorum` shows the voters.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            DuplicateVoterError: it is a voter already. UnsupportedVersionError: the quorum is fixed by
                ``controller.quorum.voters`` (``kraft.version`` 0), or brokers before 3.9. KafkaTimeoutError: also
                when the endpoints lead to no such controller, or *directory_id* is not its own: it never catches up.
                ClusterAuthorizationError, …
        """
        (node,), directory, reached, limit = brokers([voter], "voter"), _directory(directory_id), _endpoints(endpoints), self._limit(timeout)
        await self._core.call(lambda finish, deadline: add_voter_call(
            node, directory, reached, timeout=self._broker_limit(limit), finish=finish, deadline=deadline), limit)

    async def remove_raft_voter(self, voter: int, directory_id: UUID, *, timeout: float | None = OPTION) -> None:
        """Let the controller *voter* with that *directory_id* vote no more; it goes on following the metadata log
        until it is shut down (KIP-853).

        When an answer is lost, the retry may raise VoterNotFoundError: `describe_quorum` shows the voters.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            VoterNotFoundError: it is no voter, or has another directory. UnsupportedVersionError: the quorum is fixed
                by ``controller.quorum.voters`` (``kraft.version`` 0), or brokers before 3.9. ClusterAuthorizationError,
                …
        """
        (node,), directory = brokers([voter], "voter"), _directory(directory_id)
        await self._core.call(lambda finish, deadline: remove_voter_call(node, directory, finish=finish, deadline=deadline), self._limit(timeout))


class ClusterCalls(BlockingCalls):
    """Calls of `Admin` that concern the cluster."""

    _admin: AsyncClusterCalls

    def describe_cluster(self, *, include_authorized_operations: bool = False, include_fenced_brokers: bool = False,
                         timeout: float | None = OPTION) -> ClusterDescription:
        """The cluster's id, brokers and controller.

        With *include_authorized_operations* also what this client's user may do with the cluster; with
        *include_fenced_brokers* also brokers that are registered but fenced, as those that are shut down. Of
        ``bootstrap_controllers`` it has the controllers as nodes.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnsupportedVersionError: authorized operations of brokers before 2.8, fenced brokers before 4.0, controllers
                before 3.7. MismatchedEndpointTypeError: ``bootstrap_controllers`` leads to brokers.
        """
        return self._call(lambda: self._admin.describe_cluster(
            include_authorized_operations=include_authorized_operations, include_fenced_brokers=include_fenced_brokers, timeout=timeout))

    def describe_features(self, *, timeout: float | None = OPTION) -> dict[str, FeatureRange]:
        """The features of the cluster by name (KIP-584), such as ``metadata.version`` and ``transaction.version``.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnsupportedVersionError: the brokers have no features (before 2.7).
        """
        return self._call(lambda: self._admin.describe_features(timeout=timeout))

    def update_features(self, levels: Mapping[str, int], change: FeatureChange = FeatureChange.UPGRADE, *, validate_only: bool = False,
                        timeout: float | None = OPTION) -> None:
        """Finalize *levels* of features by name, as ``kafka-features.sh upgrade`` and ``downgrade``; 0 switches one
        off.

        All of them change, or none; with *validate_only* none. A level that is finalized already is no change. Brokers
        learn of it a little later.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidUpdateVersionError: the feature or its level is unknown, lower (see *change*), or another feature
                needs the present one. ClusterAuthorizationError, UnsupportedVersionError (brokers before 3.3), …: for a
                single feature; PartialFailureError: for several, of brokers before 4.0.
        """
        self._call(lambda: self._admin.update_features(levels, change, validate_only=validate_only, timeout=timeout))

    def unregister_broker(self, node: int, *, timeout: float | None = OPTION) -> None:
        """Remove the broker *node*, which is shut down and does not come back, from the cluster's metadata (KIP-631).

        Brokers otherwise wait for it, for instance when features are updated. Its partitions must have been moved
        (`plan_without_brokers`). A broker that runs registers again.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            BrokerIdNotRegisteredError, ClusterAuthorizationError, UnsupportedVersionError (a cluster with ZooKeeper), …
        """
        self._call(lambda: self._admin.unregister_broker(node, timeout=timeout))

    def describe_quorum(self, *, timeout: float | None = OPTION) -> Quorum:
        """The controllers that vote on the metadata log, how far each is, and the brokers that follow (KIP-836).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, UnsupportedVersionError (a cluster with ZooKeeper).
        """
        return self._call(lambda: self._admin.describe_quorum(timeout=timeout))

    def add_raft_voter(self, voter: int, directory_id: UUID, endpoints: Iterable[VoterEndpoint], *, timeout: float | None = OPTION) -> None:
        """Let the controller *voter* vote on the metadata log: a node that follows it already (KIP-853).

        *directory_id* is that of its log directory, `describe_quorum` has it of observers; *endpoints* are its
        listeners for controllers. While it has not caught up, or another voter is being added or removed, this
        retries. When an answer is lost, the retry may raise DuplicateVoterError: `describe_quorum` shows the voters.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            DuplicateVoterError: it is a voter already. UnsupportedVersionError: the quorum is fixed by
                ``controller.quorum.voters`` (``kraft.version`` 0), or brokers before 3.9. KafkaTimeoutError: also
                when the endpoints lead to no such controller, or *directory_id* is not its own: it never catches up.
                ClusterAuthorizationError, …
        """
        self._call(lambda: self._admin.add_raft_voter(voter, directory_id, endpoints, timeout=timeout))

    def remove_raft_voter(self, voter: int, directory_id: UUID, *, timeout: float | None = OPTION) -> None:
        """Let the controller *voter* with that *directory_id* vote no more; it goes on following the metadata log
        until it is shut down (KIP-853).

        When an answer is lost, the retry may raise VoterNotFoundError: `describe_quorum` shows the voters.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            VoterNotFoundError: it is no voter, or has another directory. UnsupportedVersionError: the quorum is fixed
                by ``controller.quorum.voters`` (``kraft.version`` 0), or brokers before 3.9. ClusterAuthorizationError,
                …
        """
        self._call(lambda: self._admin.remove_raft_voter(voter, directory_id, timeout=timeout))


def _levels(given: object) -> dict[str, int]:
    found = mapping(given, "levels", '{"transaction.version": 2}')
    wrong = [(name, level) for name, level in found.items() if not isinstance(name, str) or isinstance(level, bool) or not isinstance(level, int) or level < 0]
    if wrong:
        raise ValueError(f"levels has {wrong[0]!r}: expected a feature's name and a level from 0 on")
    return dict(found)


def _directory(given: object) -> UUID:
    if not isinstance(given, UUID):
        raise TypeError(f"directory_id is {given!r}: expected the UUID of a log directory, as describe_quorum has it")
    return given


def _endpoints(given: Iterable[Any]) -> list[VoterEndpoint]:
    found = list(given)
    wrong = [each for each in found if not isinstance(each, VoterEndpoint)]
    if wrong or not found:
        raise TypeError(f'endpoints are {found!r}: expected those of the controller, as [VoterEndpoint("CONTROLLER", "host", 9093)]')
    return found
