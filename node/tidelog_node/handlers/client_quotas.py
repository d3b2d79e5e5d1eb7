"""Client quotas: this node describes those of its image, and the leading controller changes them (KIP-546)."""

from __future__ import annotations

from tidelog_foundation.requests import quotas as requests
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, forward, timeout_ms
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.quota_filter import QuotaFilter, describe_entity


async def alter_client_quotas(
    context: NodeContext, request: requests.AlterClientQuotasRequest
) -> requests.AlterClientQuotasResponse:
    """Change quotas, and wait until this node's image has them.

    Raises:
        TidelogError: An error of the leading controller that concerns all of them.
    """
    deadline_ms = context.clock.monotonic_ms() + timeout_ms(request.timeout_ms)
    response = await forward(context, request)
    if not request.validate_only:
        changed = {result.entity for result in response.results if result.error is None}
        wanted = {requests.entity_of(requests.names_of(each.entity)): each.ops for each in request.alterations}
        remaining_s = (deadline_ms - context.clock.monotonic_ms()) / 1000
        await context.metadata.wait_until(
            lambda image: all(_has(image, entity, wanted[entity]) for entity in changed), remaining_s
        )
    return response


async def describe_client_quotas(
    context: NodeContext, request: requests.DescribeClientQuotasRequest
) -> requests.DescribeClientQuotasResponse:
    """Return the quotas that match a filter.

    Raises:
        TidelogError: INVALID_REQUEST or UNSUPPORTED_VERSION: The filter is invalid.
    """
    wanted = QuotaFilter(request.components, strict=request.strict)
    quotas = context.metadata.image.client_quotas
    found = [describe_entity(*each) async for each in TimeSlices().of(quotas.items()) if wanted.matches(each[0])]
    return requests.DescribeClientQuotasResponse(tuple(found))


def _has(image: MetadataImage, entity: requests.QuotaEntity, ops: tuple[requests.QuotaOp, ...]) -> bool:
    limits = image.client_quotas.get(entity, {})
    return all(limits.get(op.key) == (None if op.remove else op.value) for op in ops)
