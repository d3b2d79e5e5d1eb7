"""All tables of cases."""

from __future__ import annotations

from compat.wire import (
    acls,
    configs,
    consumers,
    groups,
    partitions,
    producers,
    quotas,
    scram,
    topics,
    transaction_versions,
    transactional_offsets,
    transactions,
    two_phase,
)

FAMILIES = (
    *topics.FAMILIES,
    *configs.FAMILIES,
    *partitions.FAMILIES,
    *groups.FAMILIES,
    *consumers.FAMILIES,
    *transactions.FAMILIES,
    *producers.FAMILIES,
    *transactional_offsets.FAMILIES,
    *two_phase.FAMILIES,
    *transaction_versions.FAMILIES,
    *acls.FAMILIES,
    *quotas.FAMILIES,
    *scram.FAMILIES,
)
