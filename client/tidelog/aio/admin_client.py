"""The admin client for asyncio."""

from __future__ import annotations

from typing import Self

from tidelog.admin.admin_client import AdminOperations
from tidelog.admin.metadata import ClusterMetadata, GroupMetadata, cluster_id, group_metadata, list_topics
from tidelog.telemetry.instance_ids import awaited_instance_id
from tidelog.uuid import Uuid
from tidelog_foundation.transport import run_on_network


class AdminClient(AdminOperations):
    """Administers a cluster from an event loop. Close it, or use it as an async context manager.

    ::

        async with AdminClient({"bootstrap.servers": "127.0.0.1:9094"}) as admin:
            await admin.create_topics([NewTopic("flights", 12, 3)])["flights"]
            cluster = await admin.describe_cluster()

    The operations are those of :class:`tidelog.AdminClient`. They return the same futures without waiting, and you can
    await each future. Cancelling the wait does not cancel the operation. ``future.result()`` would block the loop until
    the future is done.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Pending operations fail with _DESTROY. A second call has no effect."""
        if not self._lifetime.is_over:
            self._lifetime.end()
            await self._lifetime.stop_awaited()

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with another name and password from now on; open sessions continue.

        Raises:
            KafkaException: _INVALID_ARG, one of them is empty, or sasl.mechanisms is not PLAIN or SCRAM.
        """
        self._lifetime.check()
        self._cluster.replace_credentials(username, password)

    async def client_instance_id(self, timeout: float) -> Uuid:  # noqa: ASYNC109
        """Return the id under which a node exports the pushed metrics, as :class:`tidelog.AdminClient` does."""
        return await awaited_instance_id(self._lifetime, self._telemetry, timeout)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:  # noqa: ASYNC109
        """Return the cluster's nodes and topics. Raise KafkaException if no node answers in ``timeout`` seconds."""
        self._lifetime.check()
        return await run_on_network(list_topics(self._cluster, topic, timeout))

    async def cluster_id(self, timeout: float = -1) -> str:  # noqa: ASYNC109
        """Return the cluster's id. Raise KafkaException if no node answers in ``timeout`` seconds."""
        self._lifetime.check()
        return await run_on_network(cluster_id(self._cluster, timeout))

    async def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:  # noqa: ASYNC109
        """Return the groups of all kinds, or one. Raise KafkaException if a node does not answer in time."""
        self._lifetime.check()
        return await run_on_network(group_metadata(self._cluster, group, timeout))
