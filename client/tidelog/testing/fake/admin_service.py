"""AdminService of the fake: topics, and the cluster of one node that is its own controller."""

from __future__ import annotations

import grpc

from tidelog.testing.fake.configs import alter_configs, describe_configs
from tidelog.testing.fake.faults import Fault, Gate, error_message
from tidelog.testing.fake.log_service import NodeInfo, topic_metadata
from tidelog.testing.fake.placement import alter_partition_reassignments, elect_leaders
from tidelog.testing.fake.topics import NODE_ID, TopicTable
from tidelog.v1 import admin_service_pb2, admin_service_pb2_grpc, common_pb2, log_service_pb2
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import REQUEST_ID_SIZE


class AdminServicer(admin_service_pb2_grpc.AdminServiceServicer):
    """Answers on the server's threads; `TopicTable.changed` guards all state."""

    def __init__(self, table: TopicTable, gate: Gate, info: NodeInfo) -> None:
        self._table = table
        self._gate = gate
        self._info = info

    def CreateTopics(  # noqa: N802
        self, request: admin_service_pb2.CreateTopicsRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.CreateTopicsResponse:
        """Create each topic or say why not."""
        return self._gate.serve("CreateTopics", context, lambda fault: self._create_topics(request, fault))

    def DeleteTopics(  # noqa: N802
        self, request: admin_service_pb2.DeleteTopicsRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.DeleteTopicsResponse:
        """Delete each topic or say why not."""
        return self._gate.serve("DeleteTopics", context, lambda fault: self._delete_topics(request, fault))

    def ListTopics(  # noqa: N802
        self, request: admin_service_pb2.ListTopicsRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.ListTopicsResponse:
        """List the topics; none is internal."""
        return self._gate.serve("ListTopics", context, lambda fault: self._list_topics())

    def DescribeTopics(  # noqa: N802
        self, request: admin_service_pb2.DescribeTopicsRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.DescribeTopicsResponse:
        """Describe the topics asked for."""
        return self._gate.serve("DescribeTopics", context, lambda fault: self._describe_topics(request, fault))

    def CreatePartitions(  # noqa: N802
        self, request: admin_service_pb2.CreatePartitionsRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.CreatePartitionsResponse:
        """Add partitions to each topic or say why not."""
        return self._gate.serve("CreatePartitions", context, lambda fault: self._create_partitions(request, fault))

    def DescribeConfigs(  # noqa: N802
        self, request: admin_service_pb2.DescribeConfigsRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.DescribeConfigsResponse:
        """Describe the settings of topics; the fake's node has none."""
        return self._gate.serve("DescribeConfigs", context, lambda fault: describe_configs(self._table, request, fault))

    def IncrementalAlterConfigs(  # noqa: N802
        self, request: admin_service_pb2.IncrementalAlterConfigsRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.IncrementalAlterConfigsResponse:
        """Change the settings of each topic or say why not."""
        return self._gate.serve(
            "IncrementalAlterConfigs", context, lambda fault: alter_configs(self._table, request, fault)
        )

    def DescribeCluster(  # noqa: N802
        self, request: admin_service_pb2.DescribeClusterRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.DescribeClusterResponse:
        """Describe the one node, which is the only voter as well."""
        return self._gate.serve("DescribeCluster", context, lambda fault: self._describe_cluster())

    def ElectLeaders(  # noqa: N802
        self, request: admin_service_pb2.ElectLeadersRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.ElectLeadersResponse:
        """Say that every partition has its leader."""
        return self._gate.serve("ElectLeaders", context, lambda fault: elect_leaders(self._table, request))

    def AlterPartitionReassignments(  # noqa: N802
        self, request: admin_service_pb2.AlterPartitionReassignmentsRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.AlterPartitionReassignmentsResponse:
        """Accept the replicas that partitions have."""
        return self._gate.serve(
            "AlterPartitionReassignments",
            context,
            lambda fault: alter_partition_reassignments(self._table, request),
        )

    def ListPartitionReassignments(  # noqa: N802
        self, request: admin_service_pb2.ListPartitionReassignmentsRequest, context: grpc.ServicerContext
    ) -> admin_service_pb2.ListPartitionReassignmentsResponse:
        """List none: none can be under way."""
        return self._gate.serve(
            "ListPartitionReassignments",
            context,
            lambda fault: admin_service_pb2.ListPartitionReassignmentsResponse(),
        )

    def _create_topics(
        self, request: admin_service_pb2.CreateTopicsRequest, fault: Fault
    ) -> admin_service_pb2.CreateTopicsResponse:
        if len(request.request_id) not in (0, REQUEST_ID_SIZE):
            text = f"a request's id has {REQUEST_ID_SIZE} bytes, not {len(request.request_id)}"
            raise error_for(ErrorCode.INVALID_REQUEST, text)
        names = [topic.name for topic in request.topics]
        with self._table.changed:
            results = [self._create_one(request, topic, names.count(topic.name), fault) for topic in request.topics]
        return admin_service_pb2.CreateTopicsResponse(topics=results)

    def _create_one(
        self,
        request: admin_service_pb2.CreateTopicsRequest,
        wanted: admin_service_pb2.CreatableTopic,
        occurrences: int,
        fault: Fault,
    ) -> admin_service_pb2.CreatableTopicResult:
        try:
            fault.before_effect()
            if occurrences > 1:
                raise error_for(ErrorCode.INVALID_REQUEST, f'topic "{wanted.name}" is named {occurrences} times')
            configs = {entry.name: entry.value for entry in wanted.configs}
            if len(configs) != len(wanted.configs):
                text = f"a configuration of topic {wanted.name!r} is named twice"
                raise error_for(ErrorCode.INVALID_CONFIG, text)
            topic = self._table.create(
                wanted.name,
                wanted.num_partitions,
                wanted.replication_factor,
                {a.partition_index: list(a.broker_ids) for a in wanted.assignments},
                configs,
                request.validate_only,
                request.request_id,
            )
            fault.after_effect()
        except TidelogError as error:
            return admin_service_pb2.CreatableTopicResult(name=wanted.name, error=error_message(error))
        return admin_service_pb2.CreatableTopicResult(
            name=topic.name,
            topic_id=b"" if request.validate_only else topic.topic_id,
            num_partitions=len(topic.partitions),
            replication_factor=1,
        )

    def _create_partitions(
        self, request: admin_service_pb2.CreatePartitionsRequest, fault: Fault
    ) -> admin_service_pb2.CreatePartitionsResponse:
        names = [topic.name for topic in request.topics]
        results: dict[str, admin_service_pb2.CreatePartitionsResult] = {}
        with self._table.changed:
            for wanted in request.topics:
                results[wanted.name] = admin_service_pb2.CreatePartitionsResult(name=wanted.name)
                try:
                    fault.before_effect()
                    if names.count(wanted.name) > 1:
                        text = f"topic {wanted.name!r} is named {names.count(wanted.name)} times"
                        raise error_for(ErrorCode.INVALID_REQUEST, text)
                    self._table.add_partitions(wanted, request.validate_only)
                    fault.after_effect()
                except TidelogError as error:
                    results[wanted.name].error.CopyFrom(error_message(error))
        return admin_service_pb2.CreatePartitionsResponse(topics=results.values())

    def _delete_topics(
        self, request: admin_service_pb2.DeleteTopicsRequest, fault: Fault
    ) -> admin_service_pb2.DeleteTopicsResponse:
        with self._table.changed:
            results = [self._delete_one(name, fault) for name in request.topic_names]
            results += [self._delete_by_id(topic_id, fault) for topic_id in request.topic_ids]
            self._table.changed.notify_all()
        return admin_service_pb2.DeleteTopicsResponse(topics=results)

    def _delete_one(self, name: str, fault: Fault) -> admin_service_pb2.DeletableTopicResult:
        try:
            fault.before_effect()
            topic = self._table.delete(name)
            fault.after_effect()
        except TidelogError as error:
            return admin_service_pb2.DeletableTopicResult(name=name, error=error_message(error))
        return admin_service_pb2.DeletableTopicResult(name=name, topic_id=topic.topic_id)

    def _delete_by_id(self, topic_id: bytes, fault: Fault) -> admin_service_pb2.DeletableTopicResult:
        for name in self._table.names():
            if self._table.topic(name).topic_id == topic_id:
                return self._delete_one(name, fault)
        error = error_for(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of the id {topic_id.hex()}")
        return admin_service_pb2.DeletableTopicResult(topic_id=topic_id, error=error_message(error))

    def _list_topics(self) -> admin_service_pb2.ListTopicsResponse:
        with self._table.changed:
            topics = [self._table.topic(name) for name in self._table.names()]
        listings = [admin_service_pb2.TopicListing(name=t.name, topic_id=t.topic_id) for t in topics]
        return admin_service_pb2.ListTopicsResponse(topics=listings)

    def _describe_topics(
        self, request: admin_service_pb2.DescribeTopicsRequest, fault: Fault
    ) -> admin_service_pb2.DescribeTopicsResponse:
        with self._table.changed:
            topics = [self._describe_one(name, fault) for name in request.topic_names]
        return admin_service_pb2.DescribeTopicsResponse(topics=topics)

    def _describe_one(self, name: str, fault: Fault) -> admin_service_pb2.TopicDescription:
        try:
            fault.before_effect()
            fault.after_effect()
            topic = self._table.topic(name)
        except TidelogError as error:
            failed = log_service_pb2.TopicMetadata(name=name, error=error_message(error))
            return admin_service_pb2.TopicDescription(topic=failed)
        configs = [common_pb2.ConfigEntry(name=key, value=value) for key, value in sorted(topic.configs.items())]
        return admin_service_pb2.TopicDescription(topic=topic_metadata(topic), configs=configs)

    def _describe_cluster(self) -> admin_service_pb2.DescribeClusterResponse:
        endpoint = common_pb2.Endpoint(host=self._info.host, port=self._info.port)
        return admin_service_pb2.DescribeClusterResponse(
            cluster_id=self._info.cluster_id,
            controller_id=NODE_ID,
            brokers=[admin_service_pb2.ClusterBroker(broker_id=NODE_ID, host=endpoint.host, port=endpoint.port)],
            voters=[admin_service_pb2.QuorumVoter(voter_id=NODE_ID, endpoint=endpoint)],
        )
