"""confluent-kafka's clients (librdkafka) as those of a run."""

from tidelog_chaos.workload.confluent.library import ConfluentLibrary

__all__ = ["ConfluentLibrary"]
