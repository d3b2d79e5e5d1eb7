"""DescribeProcess: the surroundings of this node, which only the node itself knows."""

from __future__ import annotations

import asyncio

from tidelog_foundation.monitoring import process_state
from tidelog_foundation.requests import processes as requests
from tidelog_node.handlers.context import NodeContext
from tidelog_quorum.metadata.features import own_features


async def describe_process(
    context: NodeContext, request: requests.DescribeProcessRequest
) -> requests.DescribeProcessResponse:
    """Describe this process, with the file system of each entry of ``log.dirs``, online or not."""
    features = own_features(context.metadata.image.feature_levels)
    return await asyncio.to_thread(process_state.describe_process, context.partitions.log_dirs, features)
