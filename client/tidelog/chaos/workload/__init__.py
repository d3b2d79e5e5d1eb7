"""What clients do during a run: the queue workload of Jepsen's tests of Kafka."""

from tidelog.chaos.workload.queue import QueueWorkload, WorkloadSettings, check_clients

__all__ = ["QueueWorkload", "WorkloadSettings", "check_clients"]
