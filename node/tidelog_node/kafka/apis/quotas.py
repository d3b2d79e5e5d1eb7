"""DescribeClientQuotas, answered by this node, and AlterClientQuotas, forwarded to the leading controller."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests import quotas as requests
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.kafka.apis.errors import code_of, text_of
from tidelog_node.kafka.protocol.messages import quotas as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi


async def describe_client_quotas(
    node: KafkaNode, request: wire.DescribeClientQuotasRequest, caller: Caller
) -> wire.DescribeClientQuotasResponse:
    """Describe the quotas that match a filter."""
    components = tuple(requests.QuotaFilterComponent(c.entity_type, c.match_type, c.match) for c in request.components)
    call = requests.DescribeClientQuotasRequest(components, request.strict)
    try:
        found = await handlers.describe_client_quotas(node.context, call)
    except TidelogError as error:
        return wire.DescribeClientQuotasResponse(error_code=code_of(error), error_message=text_of(error), entries=None)
    entries = [
        wire.QuotaEntryData(_data(entry.entity), [wire.QuotaValueData(v.key, v.value) for v in entry.values])
        async for entry in TimeSlices().of(found.entries)
    ]
    return wire.DescribeClientQuotasResponse(error_message=None, entries=entries)


async def alter_client_quotas(
    node: KafkaNode, request: wire.AlterClientQuotasRequest, caller: Caller
) -> wire.AlterClientQuotasResponse:
    """Change quotas. An error of the call is that of every entity, as in Kafka's ``getErrorResponse``."""
    slices = TimeSlices()
    alterations = tuple([_alteration(entry) async for entry in slices.of(request.entries)])
    try:
        call = requests.AlterClientQuotasRequest(alterations, request.validate_only)
        results = (await handlers.alter_client_quotas(node.context, call)).results
    except TidelogError as error:
        results = tuple(requests.QuotaAlterationResult(each.entity, error) for each in alterations)
    return wire.AlterClientQuotasResponse(
        entries=[
            wire.QuotaAlterationResultData(code_of(result.error), text_of(result.error), _data(result.entity))
            async for result in slices.of(results)
        ]
    )


def _alteration(entry: wire.QuotaAlterationData) -> requests.QuotaAlteration:
    return requests.QuotaAlteration(
        tuple(requests.QuotaEntityPart(part.entity_type, part.entity_name) for part in entry.entity),
        tuple(requests.QuotaOp(op.key, op.value, op.remove) for op in entry.ops),
    )


def _data(entity: Iterable[requests.QuotaEntityPart]) -> list[wire.QuotaEntityData]:
    return [wire.QuotaEntityData(part.entity_type, part.entity_name) for part in entity]


APIS: tuple[Api, ...] = (
    MessageApi(wire.DescribeClientQuotasRequest, describe_client_quotas),
    MessageApi(wire.AlterClientQuotasRequest, alter_client_quotas),
)
