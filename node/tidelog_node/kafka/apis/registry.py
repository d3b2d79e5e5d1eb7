"""All APIs that the listener serves. No other API is advertised."""

from __future__ import annotations

from tidelog_node.kafka.apis import (
    acls,
    cluster,
    configs,
    delegation_tokens,
    fetch,
    group_admin,
    group_members,
    group_offsets,
    log_dirs,
    metadata,
    offsets,
    produce,
    producers,
    quorum,
    quotas,
    replicas,
    sasl,
    scram,
    telemetry,
    topics,
    transaction_markers,
    transactions,
)
from tidelog_node.kafka.apis.api_versions import ApiVersionsApi
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.served import Api

_FAMILIES: tuple[tuple[Api, ...], ...] = (
    (ApiVersionsApi(lambda: all_apis()),),
    acls.APIS,
    cluster.APIS,
    configs.APIS,
    delegation_tokens.APIS,
    fetch.APIS,
    group_admin.APIS,
    group_members.APIS,
    group_offsets.APIS,
    log_dirs.APIS,
    metadata.APIS,
    offsets.APIS,
    produce.APIS,
    producers.APIS,
    quorum.APIS,
    quotas.APIS,
    replicas.APIS,
    sasl.APIS,
    scram.APIS,
    telemetry.APIS,
    topics.APIS,
    transaction_markers.APIS,
    transactions.APIS,
)


def all_apis() -> dict[ApiKey, Api]:
    """Return each API by its number."""
    return {api.key: api for family in _FAMILIES for api in family}
