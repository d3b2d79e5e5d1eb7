"""DescribeProducers of the fake: who writes to each partition with a producer id."""

from __future__ import annotations

from tidelog.testing.fake.faults import Fault, error_message
from tidelog.testing.fake.topics import TopicTable
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import TidelogError


def describe_producers(
    table: TopicTable, request: pb.DescribeProducersRequest, fault: Fault
) -> pb.DescribeProducersResponse:
    """Answer for every partition; errors are inside."""
    response = pb.DescribeProducersResponse()
    with table.changed:
        for topic in request.topics:
            results = response.topics.add(name=topic.name)
            for index in topic.partitions:
                result = results.partitions.add(index=index)
                try:
                    fault.before_effect()
                    fault.after_effect()
                    result.active_producers.extend(table.partition(topic.name, index).active_producers())
                except TidelogError as error:
                    result.error.CopyFrom(error_message(error))
    return response
