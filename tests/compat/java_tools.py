"""Kafka's shell tools, run as the Java classes that the scripts of its archive start."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

import pytest
from compat.jars import QUICK_JAVA, Unavailable, java, kafka_libs

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
_NOISE = ("SLF4J", "log4j", "WARNING: sun.", "Picked up")


@dataclass(frozen=True, slots=True)
class Ended:
    """A tool that has ended: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err


def run(tool: str, *arguments: str, stdin: str = "", timeout_s: float = 90) -> Ended:
    """Run a tool to its end; the test is skipped where there is no Java or no jar."""
    try:
        command = [java(), *QUICK_JAVA, "-cp", f"{kafka_libs()}/*", TOOLS[tool], *arguments]
    except Unavailable as error:
        pytest.skip(str(error))
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    err = "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith(_NOISE))
    return Ended(done.returncode, done.stdout, err)


class Shell:
    """The tools pointed at one cluster."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """Run a tool with ``--bootstrap-server``; returns what it printed, or fails with all of it."""
        done = self.ended(tool, *arguments, stdin=stdin)
        assert done.code == 0, f"{tool} {' '.join(arguments)} ended with {done.code}:\n{done.said}"
        return done.out

    def ended(self, tool: str, *arguments: str, stdin: str = "") -> Ended:
        """Run a tool, which may fail."""
        return run(tool, "--bootstrap-server", self._servers, *arguments, stdin=stdin)
