"""Kafka's own shell tools do to our cluster what they do to Kafka's: topics, records, settings and groups."""

from __future__ import annotations

import re

import pytest
from compat.clients.all import client
from compat.clients.record import Record
from compat.cluster import NODES, Deployment
from compat.java_tools import Shell

pytestmark = pytest.mark.compat

FIRST_MS = 1_700_000_000_000


@pytest.fixture
def shell(cluster: Deployment) -> Shell:
    return Shell(cluster.servers)


@pytest.fixture
def topic(cluster: Deployment, name: str) -> str:
    """Two partitions on all nodes, the first with ten records."""
    cluster.create(name, 2, replicas=NODES)
    records = [Record(b"value %d" % n, timestamp_ms=FIRST_MS + n, partition=0) for n in range(10)]
    client("confluent-kafka").produce(cluster.servers, name, records)
    return name


def table(text: str, first: str) -> list[dict[str, str]]:
    """Return the rows of a printed table below the line that begins with ``first``."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    start = next(i for i, line in enumerate(lines) if line[0] == first)
    return [dict(zip(lines[start], line, strict=False)) for line in lines[start + 1 :]]


def test_kafka_topics_creates_describes_alters_and_deletes(shell: Shell, name: str) -> None:
    topics = ("kafka-topics", "--topic", name)
    create = ("--create", "--partitions", "3", "--replication-factor", "2")
    assert f"Created topic {name}." in shell(*topics, *create, "--config", "retention.ms=3600000")
    assert f"Topic '{name}' already exists" in shell.ended(*topics, *create).said
    assert name in shell("kafka-topics", "--list").split()
    head, *partitions = shell(*topics, "--describe").splitlines()
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 2\s+Configs: .*retention.ms=3600000", head)
    assert re.search(r"TopicId: [\w-]{22}\s", head)
    for index, line in enumerate(partitions):
        found = re.search(rf"Partition: {index}\s+Leader: (\d)\s+Replicas: (\d,\d)\s+Isr: (\d,\d)", line)
        assert found is not None
        assert found[1] == found[2][0]
    shell(*topics, "--alter", "--partitions", "5")
    assert "PartitionCount: 5" in shell(*topics, "--describe")
    assert "2 would not be an increase" in shell.ended(*topics, "--alter", "--partitions", "2").said
    shell(*topics, "--delete")
    assert name not in shell("kafka-topics", "--list").split()
    assert f"Topic '{name}' does not exist" in shell.ended(*topics, "--describe").said


def test_kafka_topics_lists_partitions_that_lack_replicas(shell: Shell, topic: str) -> None:
    assert shell("kafka-topics", "--describe", "--topic", topic, "--under-replicated-partitions").strip() == ""
    assert shell("kafka-topics", "--describe", "--topic", topic, "--unavailable-partitions").strip() == ""


def test_kafka_topics_refuses_what_no_cluster_can_have(shell: Shell, name: str) -> None:
    create = ("kafka-topics", "--create", "--topic", name)
    assert f"only {NODES} broker(s) are registered" in shell.ended(*create, "--replication-factor", "9").said
    refused = shell.ended(*create, "--config", "retention.ms=never")
    assert refused.code == 1
    assert "Invalid value never for configuration retention.ms" in refused.said
    assert "Unknown topic config name: no.such" in shell.ended(*create, "--config", "no.such=1").said


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(shell: Shell, cluster: Deployment, name: str, codec: str) -> None:
    cluster.create(name, 1, NODES)
    parse = [f"parse.{part}=true" for part in ("key", "headers")]
    show = [f"print.{part}=true" for part in ("key", "headers", "offset", "partition", "timestamp")]
    lines = "".join(f"h:{n},i:x\tkey {n}\tvalue {n}\n" for n in range(5)) + "NULL\tkey 5\tNULL\n"
    sent = ("--compression-codec", codec, "--property", "null.marker=NULL")
    shell("kafka-console-producer", "--topic", name, *sent, *_properties(parse), stdin=lines)
    read = ("--topic", name, "--from-beginning", "--max-messages", "6", "--timeout-ms", "30000")
    printed = shell("kafka-console-consumer", *read, *_properties(show)).splitlines()
    assert [re.sub(r"CreateTime:\d+", "T", line) for line in printed] == [
        *(f"T\tPartition:0\tOffset:{n}\th:{n},i:x\tkey {n}\tvalue {n}" for n in range(5)),
        "T\tPartition:0\tOffset:5\tNO_HEADERS\tkey 5\tnull",
    ]


def _properties(values: list[str]) -> list[str]:
    return [part for value in values for part in ("--property", value)]


def test_kafka_consumer_groups_lists_describes_resets_and_deletes(
    shell: Shell, cluster: Deployment, topic: str
) -> None:
    group = f"group-of-{topic}"
    groups = ("kafka-consumer-groups", "--group", group)
    read = ("--topic", topic, "--from-beginning", "--max-messages", "10", "--timeout-ms", "30000", "--group", group)
    assert len(shell("kafka-console-consumer", *read).splitlines()) == 10
    assert group in shell("kafka-consumer-groups", "--list").split()
    rows = {row["PARTITION"]: row for row in table(shell(*groups, "--describe"), "GROUP")}
    assert (rows["0"]["CURRENT-OFFSET"], rows["0"]["LOG-END-OFFSET"], rows["0"]["LAG"]) == ("10", "10", "0")
    [state] = table(shell(*groups, "--describe", "--state"), "GROUP")
    assert "Empty" in state.values()
    assert "no active members" in shell.ended(*groups, "--describe", "--members").said
    reset = (*groups, "--reset-offsets", "--topic", f"{topic}:0")
    [planned] = table(shell(*reset, "--to-offset", "4", "--dry-run"), "GROUP")
    assert planned["NEW-OFFSET"] == "4"
    shell(*reset, "--shift-by", "-3", "--execute")
    rows = {row["PARTITION"]: row for row in table(shell(*groups, "--describe"), "GROUP")}
    assert (rows["0"]["CURRENT-OFFSET"], rows["0"]["LAG"]) == ("7", "3")
    shell(*groups, "--reset-offsets", "--all-topics", "--to-earliest", "--execute")
    shell(*groups, "--delete-offsets", "--topic", topic)
    shell(*groups, "--delete")
    assert group not in shell("kafka-consumer-groups", "--list").split()


def test_kafka_consumer_groups_describes_members(shell: Shell, cluster: Deployment, name: str) -> None:
    from compat.clients.client import Member, wait_for

    cluster.create(name, 2, NODES)
    groups = ("kafka-consumer-groups", "--group", name, "--describe")
    with Member(client("confluent-kafka"), cluster.servers, name, name) as member:
        wait_for(lambda: len(member.assigned) == 2, "both partitions")
        [row] = table(shell(*groups, "--members", "--verbose"), "GROUP")
        assert (row["#PARTITIONS"], row["CLIENT-ID"]) == ("2", "rdkafka")
        [state] = table(shell(*groups, "--state"), "GROUP")
        assert {"Stable", "range"} <= set(state.values())
        assert "is not empty" in shell.ended("kafka-consumer-groups", "--group", name, "--delete").said
        listed = table(shell("kafka-consumer-groups", "--list", "--state"), "GROUP")
        assert name in [row["GROUP"] for row in listed if row["STATE"] == "Stable"]


def test_perf_tests(shell: Shell, cluster: Deployment, name: str) -> None:
    from compat.java_tools import run

    cluster.create(name, 3, NODES)
    load = ("--topic", name, "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    done = run(
        "kafka-producer-perf-test", *load, "--producer-props", f"bootstrap.servers={cluster.servers}", "acks=all"
    )
    assert done.code == 0, done.said
    assert "20000 records sent" in done.out
    printed = shell("kafka-consumer-perf-test", "--topic", name, "--messages", "20000", "--timeout", "30000")
    assert int(printed.splitlines()[-1].split(", ")[4]) >= 20_000
    offsets = shell("kafka-get-offsets", "--topic", name).split()
    assert sum(int(line.rsplit(":", 1)[1]) for line in offsets) == 20_000


def test_kafka_configs_alters_topics_and_brokers(shell: Shell, topic: str) -> None:
    of_topic = ("kafka-configs", "--entity-type", "topics", "--entity-name", topic)
    shell(*of_topic, "--alter", "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]")
    said = shell(*of_topic, "--describe")
    assert "retention.ms=7200000" in said
    assert "cleanup.policy=compact,delete" in said
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=7200000" in said
    shell(*of_topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in shell(*of_topic, "--describe")
    assert "retention.ms=604800000" in shell(*of_topic, "--describe", "--all")
    assert "InvalidConfigurationException" in shell.ended(*of_topic, "--alter", "--add-config", "no.such=1").said
    of_broker = ("kafka-configs", "--entity-type", "brokers", "--entity-name", "1")
    shell(*of_broker, "--alter", "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in shell(*of_broker, "--describe")
    shell(*of_broker, "--alter", "--delete-config", "log.cleaner.threads")
    assert "node.id=1" in shell(*of_broker, "--describe", "--all")


def test_kafka_configs_alters_levels_of_loggers(shell: Shell) -> None:
    of_loggers = ("kafka-configs", "--entity-type", "broker-loggers", "--entity-name", "1")
    levels = re.findall(r"^ *(\S+)=(\w+) sensitive=false", shell(*of_loggers, "--describe"), re.MULTILINE)
    assert ("root", "INFO") in levels
    name = next(name for name, level in levels if level == "INFO" and name != "root")
    shell(*of_loggers, "--alter", "--add-config", f"{name}=DEBUG")
    assert f"{name}=DEBUG" in shell(*of_loggers, "--describe")
    shell(*of_loggers, "--alter", "--delete-config", name)
    assert f"{name}=INFO" in shell(*of_loggers, "--describe")


def test_kafka_configs_alters_groups_and_keeps_settings_that_brokers_do_not_have(shell: Shell, name: str) -> None:
    of_group = ("kafka-configs", "--entity-type", "groups", "--entity-name", name)
    shell(*of_group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    said = shell(*of_group, "--describe")
    assert "consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:" in said
    assert f"for group {name} are" in shell("kafka-configs", "--entity-type", "groups", "--describe")
    assert (
        "InvalidConfigurationException"
        in shell.ended(*of_group, "--alter", "--add-config", "consumer.session.timeout.ms=1").said
    )
    shell(*of_group, "--alter", "--delete-config", "consumer.session.timeout.ms")
    assert "consumer.session.timeout.ms" not in shell(*of_group, "--describe")
    of_broker = ("kafka-configs", "--entity-type", "brokers", "--entity-name", "1")
    shell(*of_broker, "--alter", "--add-config", "my.custom.key=v")
    assert "my.custom.key=null sensitive=true synonyms={DYNAMIC_BROKER_CONFIG:my.custom.key=null}" in shell(
        *of_broker, "--describe"
    )
    shell(*of_broker, "--alter", "--delete-config", "my.custom.key")
    refused = shell.ended(*of_broker, "--alter", "--add-config", "process.roles=broker").said
    assert "InvalidRequestException" in refused


def test_kafka_configs_alters_the_credentials_of_users(shell: Shell, cluster: Deployment, name: str) -> None:
    of_user = ("kafka-configs", "--entity-type", "users", "--entity-name", name)
    for credential in ("SCRAM-SHA-256=[iterations=8192,password=secret]", "SCRAM-SHA-512=[password=secret]"):
        shell(*of_user, "--alter", "--add-config", credential)
    said = shell(*of_user, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in said
    assert "SCRAM-SHA-512=iterations=4096" in said
    assert f"'{name}'" in shell("kafka-configs", "--entity-type", "users", "--describe")
    described = cluster.admin.describe_user_scram_credentials([name])[name].result(30)
    assert [info.iterations for info in described.scram_credential_infos] == [8192, 4096]
    shell(*of_user, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in shell(*of_user, "--describe")
    refused = shell.ended(*of_user, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "ResourceNotFoundException" in refused.said


@pytest.mark.parametrize("entity_type", ["topics", "brokers", "groups", "client-metrics"])
def test_kafka_configs_describes_all_of_a_type(shell: Shell, topic: str, entity_type: str) -> None:
    done = shell.ended("kafka-configs", "--entity-type", entity_type, "--describe")
    assert (done.code, done.err) == (0, "")
    named = {"topics": f"for topic {topic} are", "brokers": f"for broker {NODES} are"}
    assert named.get(entity_type, "") in done.out


def test_kafka_get_offsets(shell: Shell, topic: str) -> None:
    offsets = ("kafka-get-offsets", "--topic", topic)
    assert shell(*offsets).split() == [f"{topic}:0:10", f"{topic}:1:0"]
    assert shell(*offsets, "--time", "earliest").split() == [f"{topic}:0:0", f"{topic}:1:0"]
    # Partitions without such a record are left out.
    assert shell(*offsets, "--time", "max-timestamp", "--partitions", "0").split() == [f"{topic}:0:9"]
    assert shell(*offsets, "--time", str(FIRST_MS + 3), "--partitions", "0").split() == [f"{topic}:0:3"]
