"""The rule of every API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog_node.kafka.authorization import cluster_rules, group_rules, token_rules, topic_rules, transaction_rules
from tidelog_node.kafka.authorization.rule import Rule, is_open
from tidelog_node.kafka.protocol.api_keys import ApiKey

RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.API_VERSIONS: is_open,
    ApiKey.SASL_HANDSHAKE: is_open,
    ApiKey.SASL_AUTHENTICATE: is_open,
    # As in Kafka: a client that may connect may push its own metrics.
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: is_open,
    ApiKey.PUSH_TELEMETRY: is_open,
    **cluster_rules.RULES,
    **group_rules.RULES,
    **token_rules.RULES,
    **topic_rules.RULES,
    **transaction_rules.RULES,
}
