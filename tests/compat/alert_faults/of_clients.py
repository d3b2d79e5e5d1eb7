"""Faults of certificates and clients, in the deployment ``secured``."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from datetime import timedelta

import confluent_kafka.admin
from acknowledged import wait_for
from compat.alert_faults.deployment import REFUSED_ADDRESS, WAIT_S, Deployment, repeated


@contextlib.contextmanager
def certificate_of_a_week(deployment: Deployment) -> Iterator[None]:
    """Give a node a certificate that expires in a week."""
    with _certificate(deployment, timedelta(days=7)):
        yield


@contextlib.contextmanager
def certificate_of_seconds(deployment: Deployment) -> Iterator[None]:
    """Give a node a certificate, and wait until it has expired."""
    expired = "tidelog_certificate_expiry_timestamp_seconds - time() < 0"
    with _certificate(deployment, timedelta(seconds=8)):
        wait_for(lambda: deployment.series(expired) > 0, "the end of the certificate", WAIT_S)
        yield


@contextlib.contextmanager
def refused_connections(deployment: Deployment) -> Iterator[None]:
    """Connect to a node again and again from an address that may have no connection."""
    node = deployment.cluster.nodes[1]

    def connect() -> None:
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection((node.host, node.kafka_port), WAIT_S, (REFUSED_ADDRESS, 0)) as connection,
        ):
            connection.recv(1)

    with repeated(connect, 0.3):
        yield


@contextlib.contextmanager
def wrong_passwords(deployment: Deployment) -> Iterator[None]:
    """Let clients with a wrong password connect again and again."""
    settings = {
        **deployment.cluster.kafka_client_settings(),
        "sasl.password": "wrong",
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 100,
        "log_level": 0,
    }
    clients = [confluent_kafka.admin.AdminClient(settings) for _ in range(4)]
    with repeated(lambda: [client.poll(0) for client in clients], 0.2):
        yield


@contextlib.contextmanager
def _certificate(deployment: Deployment, valid_for: timedelta) -> Iterator[None]:
    host = deployment.cluster.nodes[1].host
    deployment.cluster.security.issue("node-1", host, valid_for)
    try:
        yield
    finally:
        deployment.cluster.security.issue("node-1", host)
