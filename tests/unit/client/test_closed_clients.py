"""Clients of confluent-kafka that a test leaves open are closed at its end."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from closed_clients import closing_clients

_NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_clients_that_a_test_leaves_open_are_closed_also_when_it_fails() -> None:
    kept = confluent_kafka.Producer(_NOBODY)
    clients: list[Any] = []
    with pytest.raises(ValueError, match="failed"), closing_clients():
        _fail_with(clients)
    for client in clients:
        with pytest.raises(RuntimeError, match="closed"):
            client.poll(0)
    assert kept.poll(0) >= 0
    kept.close()


def _fail_with(clients: list[Any]) -> None:
    producer = confluent_kafka.Producer(_NOBODY)
    producer.produce("t", b"never delivered")
    consumer = confluent_kafka.Consumer({**_NOBODY, "group.id": "g"})
    consumer.subscribe(["t"])
    clients += [producer, consumer, confluent_kafka.admin.AdminClient(_NOBODY)]
    raise ValueError("failed")
