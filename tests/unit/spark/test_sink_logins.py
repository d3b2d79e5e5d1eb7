"""The sink of Spark whose login is refused: a task fails at once, and not when its records time out."""

from __future__ import annotations

import time

import pytest

from tidelog import KafkaError, KafkaException, Producer
from tidelog.testing import FakeCluster
from tidelog_spark.sink.execution import check_login, open_producer
from tidelog_spark.sink.options import sink_plan

SECURED = {
    "listener.security.protocol.map": "GRPC:GRPC_SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:GRPC",
    "controller.listener.names": "CONTROLLER",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.grpc.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    "user_alice=a-secret;",
    "connection.failed.authentication.delay.ms": "1",
}


def test_task_whose_login_is_refused_fails_at_once() -> None:
    with FakeCluster(node_config=SECURED) as cluster:
        plan = sink_plan(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "topic": "t",
                "security.protocol": "sasl_plaintext",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "wrong",
            }
        )
        begun_s = time.monotonic()
        with pytest.raises(KafkaException) as exactly_once:
            open_producer(plan, "id")
        with Producer(plan.producer) as producer, pytest.raises(KafkaException) as at_least_once:
            check_login(producer)
    for failed in (exactly_once, at_least_once):
        assert failed.value.args[0].code() == KafkaError._AUTHENTICATION
    assert time.monotonic() - begun_s < 30
