"""All tables of cases."""

from __future__ import annotations

from compat.wire import configs, consumers, groups, partitions, producers, topics, transactions

FAMILIES = (
    *topics.FAMILIES,
    *configs.FAMILIES,
    *partitions.FAMILIES,
    *groups.FAMILIES,
    *consumers.FAMILIES,
    *transactions.FAMILIES,
    *producers.FAMILIES,
)
