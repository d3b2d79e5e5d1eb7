"""The settings that hold for topics and for this node, with where each comes from."""

from __future__ import annotations

from tidelog.errors import ErrorCode, error_for
from tidelog.v1 import admin_service_pb2 as pb
from tidelog_node.handlers.context import NodeContext


async def describe_configs(context: NodeContext, request: pb.DescribeConfigsRequest) -> pb.DescribeConfigsResponse:
    """Describe settings."""
    raise error_for(ErrorCode.UNSUPPORTED_VERSION, "not there yet")
