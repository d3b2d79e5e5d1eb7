"""Operations that describe the cluster and unregister nodes."""

from __future__ import annotations

from tidelog.admin.authorized import CLUSTER_OPERATIONS, with_operations
from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.admin.topics import DescribeClusterResult
from tidelog.v1 import admin_service_pb2 as pb


class ClusterAdmin(Operations):
    """Operations on the cluster as a whole."""

    def describe_cluster(
        self, *, include_authorized_operations: bool = False, request_timeout: float | None = None
    ) -> Future[DescribeClusterResult]:
        """Describe the cluster: its id, the active controller, nodes and voters.

        ``include_authorized_operations`` adds the client's permissions: all operations.
        """

        async def describe() -> Outcomes[str, DescribeClusterResult]:
            request = pb.DescribeClusterRequest()
            response = await self._ask(lambda c, t: c.admin.DescribeCluster(request, timeout=t), request_timeout)
            found = {"": DescribeClusterResult.from_proto(response)}
            return with_operations(found, CLUSTER_OPERATIONS) if include_authorized_operations else found

        return self._futures([""], describe())[""]

    def unregister_broker(self, broker_id: int, *, request_timeout: float | None = None) -> Future[None]:
        """Remove the registration of a fenced node that will not return (KIP-631); named as in Kafka's Java client.

        The future fails with KafkaException if the controller refuses, for example with BROKER_ID_NOT_REGISTERED.
        """

        async def unregister() -> Outcomes[str, None]:
            request = pb.UnregisterBrokerRequest(broker_id=broker_id)
            await self._change(lambda c, t: c.admin.UnregisterBroker(request, timeout=t), request_timeout)
            return {"": None}

        return self._futures([""], unregister())[""]
