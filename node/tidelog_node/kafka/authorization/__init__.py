"""The authorization of Kafka's APIs: one rule per API, applied before its handler."""

from tidelog_node.kafka.authorization.guard import KafkaGuard
