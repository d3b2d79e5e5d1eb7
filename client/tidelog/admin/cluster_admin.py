"""Describes the cluster, and forgets nodes that are gone."""

from __future__ import annotations

from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.admin.topics import DescribeClusterResult
from tidelog.v1 import admin_service_pb2 as pb


class ClusterAdmin(Operations):
    """Operations on the cluster as a whole."""

    def describe_cluster(self, *, request_timeout: float | None = None) -> Future[DescribeClusterResult]:
        """Describe the cluster: its id, the leading controller, nodes and voters."""

        async def describe() -> Outcomes[str, DescribeClusterResult]:
            request = pb.DescribeClusterRequest()
            response = await self._ask(lambda c, t: c.admin.DescribeCluster(request, timeout=t), request_timeout)
            return {"": DescribeClusterResult.from_proto(response)}

        return self._futures([""], describe())[""]

    def unregister_broker(self, broker_id: int, *, request_timeout: float | None = None) -> Future[None]:
        """Forget a node that is fenced and gone for good, with the names of Kafka's Java client (KIP-631).

        The future fails with KafkaException where the controller refuses, as with BROKER_ID_NOT_REGISTERED.
        """

        async def unregister() -> Outcomes[str, None]:
            request = pb.UnregisterBrokerRequest(broker_id=broker_id)
            await self._change(lambda c, t: c.admin.UnregisterBroker(request, timeout=t), request_timeout)
            return {"": None}

        return self._futures([""], unregister())[""]
