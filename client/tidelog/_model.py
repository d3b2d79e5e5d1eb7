"""The names of ``confluent_kafka._model``, which confluent-kafka's own examples import."""

from tidelog.admin import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    Node,
    TopicCollection,
    TopicPartitionInfo,
)

__all__ = [
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "ElectionType",
    "IsolationLevel",
    "Node",
    "TopicCollection",
    "TopicPartitionInfo",
]
