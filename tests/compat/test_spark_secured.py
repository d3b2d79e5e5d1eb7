"""Spark's own Kafka source and sink at a cluster with SASL_SSL and SCRAM, in batch and in streaming queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from compat.clients.all import client
from compat.clients.record import Record
from compat.cluster import Deployment, running_secured
from compat.spark import spark_session
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]
PARTITIONS, DEADLINE_S = 3, 30
PASSWORD = "a password of spark"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture(scope="module")
def secured() -> Iterator[Deployment]:
    """A cluster with a user ``spark``, who may use topics and groups that begin with ``spark``, and nothing else."""
    with running_secured(2) as (deployment, _):
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("spark", info, PASSWORD.encode())
        deployment.admin.alter_user_scram_credentials([change])["spark"].result(DEADLINE_S)
        pattern = ("spark", ResourcePatternType.PREFIXED, "User:spark", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        rules = [AclBinding(kind, *pattern) for kind in (ResourceType.TOPIC, ResourceType.GROUP)]
        for future in deployment.admin.create_acls(rules).values():
            future.result(DEADLINE_S)
        yield deployment


def options(secured: Deployment, password: str = PASSWORD, **more: str) -> dict[str, str]:
    client_settings = {
        "bootstrap.servers": secured.servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} required username="spark" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": secured.login["ssl.ca.location"],
    }
    return {f"kafka.{key}": value for key, value in client_settings.items()} | {"groupIdPrefix": "spark"} | more


def write(secured: Deployment, topic: str, numbers: range) -> None:
    records = [Record(b"%d" % n, partition=n % PARTITIONS) for n in numbers]
    login = {key.replace(".", "_"): value for key, value in secured.login.items()}
    client("confluent-kafka").produce(secured.servers, topic, records, **login)


def test_batch_queries_write_and_read_as_a_user(spark: SparkSession, secured: Deployment) -> None:
    secured.create("spark-batch", PARTITIONS, 2)
    frame = spark.range(100).selectExpr("cast(id AS string) AS value")
    frame.write.format("kafka").options(**options(secured, topic="spark-batch")).save()
    read = spark.read.format("kafka").options(**options(secured, subscribe="spark-batch")).load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(100))


def test_streaming_query_copies_a_topic_as_a_user(spark: SparkSession, secured: Deployment, tmp_path: Path) -> None:
    for topic in ("spark-source", "spark-copy"):
        secured.create(topic, PARTITIONS, 2)
    write(secured, "spark-source", range(60))
    source = options(secured, subscribe="spark-source", startingOffsets="earliest", maxOffsetsPerTrigger="25")
    frame = spark.readStream.format("kafka").options(**source).load().select("value")
    sink = frame.writeStream.format("kafka").options(**options(secured, topic="spark-copy"))
    query = sink.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    copy = spark.read.format("kafka").options(**options(secured, subscribe="spark-copy")).load()
    assert sorted(int(row.value) for row in copy.select("value").collect()) == list(range(60))


def test_query_names_a_denied_topic_and_a_wrong_password(spark: SparkSession, secured: Deployment) -> None:
    secured.create("others", 1, 2)
    with pytest.raises(Exception, match="TopicAuthorizationException"):
        spark.read.format("kafka").options(**options(secured, subscribe="others")).load().collect()
    wrong = options(secured, "wrong", subscribe="spark-batch")
    with pytest.raises(Exception, match="Authentication failed"):
        spark.read.format("kafka").options(**wrong).load().collect()
