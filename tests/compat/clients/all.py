"""Every client, by its name."""

from __future__ import annotations

import pytest
from compat.clients.aio import Aiokafka
from compat.clients.client import Client
from compat.clients.java import Java
from compat.clients.kafka_python import KafkaPython
from compat.clients.kcat import Kcat
from compat.clients.librdkafka import Confluent, Tidelog

CLIENTS: dict[str, Client] = {
    client.name: client for client in (Confluent(), KafkaPython(), Aiokafka(), Kcat(), Java())
}
SDK = Tidelog()
NAMES = [pytest.param(name, marks=[pytest.mark.compat] if name in (Java.name, Kcat.name) else []) for name in CLIENTS]
"""All of them as a test's parameters; what takes a JVM, or a program that is fetched, runs by ``make compat``."""


def client(name: str) -> Client:
    """Return a client that can be used here; the test is skipped for one that cannot."""
    found = CLIENTS[name]
    if reason := found.missing():
        pytest.skip(reason)
    return found
