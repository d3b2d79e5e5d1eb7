"""Every property of librdkafka works, has no effect that a program would miss, or is refused with a reason."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from certificates import Authority

from tidelog import AdminClient, Consumer, Producer
from tidelog.cluster.config import ClientConfig
from tidelog.cluster.librdkafka import PROPERTIES, Effect, select_settings
from tidelog.consumer.config import CALLBACKS, ConsumerConfig
from tidelog.producer.config import ProducerConfig
from tidelog.producer.hooks import OBJECTS
from tidelog_foundation.config import config_keys
from tidelog_foundation.errors import ConfigError

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
CLIENTS = {"P": Producer, "C": Consumer, "A": AdminClient}
OWN = {
    "P": {*config_keys(ProducerConfig), *OBJECTS, "logger"},
    "C": {*config_keys(ConsumerConfig), *CALLBACKS, "logger"},
    "A": {*config_keys(ClientConfig), "error_cb", "throttle_cb", "logger"},
}
_CA = Authority()
_CLIENT = _CA.issue("client")
_PASSWORD = "secret"


def tls_with(folder: Path, name: str) -> dict[str, str]:
    """Return settings of TLS that are valid together, one of which is ``name``."""
    settings = {"security.protocol": "ssl"}
    if name.startswith("ssl.ca."):
        return settings | {name: _CA.pem if name == "ssl.ca.pem" else str(_CA.write_pem(folder / "ca.pem"))}
    if name.startswith("ssl.keystore."):
        store = _CLIENT.write_pkcs12(folder / "client.p12", _PASSWORD)
        return settings | {"ssl.keystore.location": str(store), "ssl.keystore.password": _PASSWORD}
    settings |= {"ssl.key.password": _PASSWORD}
    if name.endswith(".pem"):
        return settings | {
            "ssl.key.pem": _CLIENT.key_pem(_PASSWORD),
            "ssl.certificate.pem": _CLIENT.certificate_pem,
        }
    file = str(_CLIENT.write_pem(folder / "client.pem", _PASSWORD))
    return settings | {"ssl.key.location": file, "ssl.certificate.location": file}


VALUES = {
    "security.protocol": "ssl",
    "transaction.timeout.ms": 1_000,
    "bootstrap.servers": "127.0.0.1:1",
    "metadata.broker.list": "127.0.0.1:1",
    "partition.assignment.strategy": "range",
    "group.protocol": "consumer",
    "group.remote.assignor": "uniform",
    "group.instance.id": "i",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "topic.blacklist": "^a",
    "compression.codec": "gzip",
    "compression.type": "gzip",
    "partitioner": "consistent",
    "acks": "all",
    "request.required.acks": "-1",
    "topic.metadata.refresh.interval.ms": 1000,
    "metadata.max.age.ms": 1000,
    "message.max.bytes": 10_000,
    "max.poll.interval.ms": 60_000,
    "session.timeout.ms": 6_000,
    "interceptors": [],
}
SWITCHES = (
    "delivery.report.only.error",
    "enable.auto.commit",
    "enable.idempotence",
    "enable.metrics.push",
    "enable.partition.eof",
)
NOT_OF_LIBRDKAFKA = {
    # confluent-kafka's own, and Java's words.
    *("on_delivery", "on_commit", "oauth_cb", "partitioner.class", "interceptor.classes"),
    *("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"),
}
COMPLETE_SINCE = (2, 16)
"""The first librdkafka that prints every property of the table. Older ones, which the extra allows, lack some."""


@pytest.fixture(scope="module")
def librdkafka(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The properties that the installed librdkafka prints, with the clients that each is for."""
    libraries = list(Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka[.-]*so*"))
    if sys.platform != "linux" or not libraries:
        pytest.skip("confluent-kafka brings no librdkafka that ctypes could load here")
    path = tmp_path_factory.mktemp("librdkafka") / "properties"
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(bytes(path), b"w"))
    ctypes.CDLL(str(libraries[0])).rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = re.findall(r"^(\S+) +\| +([*CP]) +\|", path.read_text(), re.MULTILINE)
    assert len(rows) > 150
    return dict(rows)


def test_properties_are_those_of_the_installed_librdkafka(librdkafka: dict[str, str]) -> None:
    assert librdkafka.keys() - PROPERTIES.keys() == set()
    assert {name: PROPERTIES[name].scope for name in librdkafka} == librdkafka
    assert NOT_OF_LIBRDKAFKA.isdisjoint(librdkafka)
    unknown_there = PROPERTIES.keys() - librdkafka.keys() - NOT_OF_LIBRDKAFKA
    major, minor = confluent_kafka.libversion()[0].split(".")[:2]
    if (int(major), int(minor)) >= COMPLETE_SINCE:
        assert unknown_there == set()


@pytest.mark.parametrize("name", sorted(n for n, p in PROPERTIES.items() if p.effect is Effect.WORKS))
def test_properties_that_work_are_read_by_the_clients_that_they_are_for(name: str, tmp_path: Path) -> None:
    known = PROPERTIES[name]
    readers = {scope for scope in "PCA" if name in OWN[scope]}
    assert readers, name
    if known.scope != "*":
        assert known.scope in readers
    for scope in readers - {"A"}:
        value: Any = print if name.endswith("_cb") or name.startswith("on_") else VALUES.get(name, 100)
        if name in SWITCHES:
            value = True
        if name in ("allow.auto.create.topics", "enable.auto.offset.store"):
            value = False
        others = {"compression.type": "gzip"} if name == "compression.level" else {}
        others |= {"group.id": "g"} if scope == "C" else {}
        others |= {"group.protocol": "consumer"} if name == "group.remote.assignor" else {}
        others |= {"session.timeout.ms": 100} if name == "max.poll.interval.ms" else {}
        value = 1 if name == "compression.level" else value
        if name.startswith("ssl."):
            others |= tls_with(tmp_path, name)
            value = others.pop(name)
        if name.startswith("sasl."):
            own = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN"}
            others |= own | {"sasl.username": "u", "sasl.password": "p"}
            value = {"sasl.oauthbearer.method": "oidc"}.get(name, "PLAIN" if name.startswith("sasl.mechanism") else "x")
            others.pop("sasl.mechanisms" if name == "sasl.mechanism" else name, None)
        with contextlib.suppress(StopIteration), CLIENTS[scope]({**NOWHERE, **others, name: value}):
            pass


@pytest.mark.parametrize("scope", CLIENTS)
def test_properties_without_effect_are_told_once_and_change_nothing(
    scope: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.cluster.config._warned", set())
    everyday = {
        "socket.keepalive.enable": True,
        "socket.nagle.disable": True,
        "socket.timeout.ms": 10_000,
        "log_level": 3,
        "debug": "broker,topic",
        "reconnect.backoff.ms": 100,
        "broker.address.family": "v4",
        "api.version.request": True,
        "client.dns.lookup": "use_all_dns_ips",
        "security.protocol": "PLAINTEXT",
        "queued.min.messages": 1000,
        "acks": "all",
    }
    for _ in range(2):
        with caplog.at_level(logging.WARNING), CLIENTS[scope]({**NOWHERE, **everyday}) as client:
            assert client._config.request_timeout_ms == 10_000
            assert client._config.reconnect_backoff_ms == 100
    told = [record.message for record in caplog.records if "has no effect" in record.message]
    words = ['"log_level" has no effect: Python\'s logging applies', '"debug"', '"broker.address']
    others = {"P": ['"queued.min.messages" has no effect: it is a consumer'], "C": ['"acks" has no effect: it is a p']}
    wanted = [*words, *others.get(scope, ['"queued.min.messages"', '"acks"'])]
    assert len(told) == len(wanted)
    assert all(any(word in text for text in told) for word in wanted)


REFUSED = [
    ({"security.protocol": "TLS"}, "security.protocol.*TLS.* is not supported: must be plaintext, ssl, sasl_plaintext"),
    ({"sasl.password": "secret"}, "sasl.password.* needs security.protocol=sasl_ssl"),
    ({"sasl.kerberos.keytab": "/k"}, "sasl.kerberos.keytab.* needs security.protocol=sasl_ssl"),
    (
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI", "sasl.kerberos.principal": "p"},
        "sasl.kerberos.keytab",
    ),
    ({"ssl.ca.location": "/ca"}, "ssl.ca.location.* needs security.protocol=ssl"),
    ({"security.protocol": "ssl", "ssl.ca.location": "/no/ca"}, "cannot read ssl.ca.location /no/ca"),
    ({"security.protocol": "ssl", "ssl.ca.pem": "nothing"}, "ssl.ca has no valid certificate"),
    ({"security.protocol": "ssl", "ssl.key.pem": "secret"}, "must be given together"),
    ({"security.protocol": "ssl", "enable.ssl.certificate.verification": False}, "gRPC always verifies"),
    ({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"}, "gRPC always verifies"),
    ({"plugin.library.paths": "x"}, "interceptors"),
    ({"log_cb": print}, "set logger"),
]


@pytest.mark.parametrize("scope", CLIENTS)
@pytest.mark.parametrize(("setting", "text"), REFUSED)
def test_properties_that_a_program_would_miss_are_refused(scope: str, setting: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        CLIENTS[scope]({**NOWHERE, **setting})
    assert "secret" not in str(caught.value)


def test_transactions_mean_nothing_to_consumers() -> None:
    assert select_settings({"transactional.id": "t"}, OWN["C"], "C") == (
        {},
        {"transactional.id": "it is a producer's property"},
    )


def test_security_settings_mean_nothing_beside_plaintext() -> None:
    given = {"security.protocol": "plaintext", "sasl.username": "u", "ssl.ca.location": "/ca"}
    reason = "security.protocol is plaintext"
    assert select_settings(given, OWN["P"], "P") == (
        {"security.protocol": "plaintext"},
        {"sasl.username": reason, "ssl.ca.location": reason},
    )


def test_a_setting_of_none_counts_as_not_given() -> None:
    assert select_settings({"linger.ms": None, "sasl.username": None}, OWN["P"], "P") == ({}, {})
    with pytest.raises(ConfigError, match=r'unknown configuration "no\.such"'):
        Producer({**NOWHERE, "no.such": None})


def test_settings_of_topics_may_stand_apart() -> None:
    given = {"default.topic.config": {"acks": "1", "retries": 3}, "retries": 5}
    assert select_settings(given, OWN["P"], "P") == ({"acks": "1", "retries": 5}, {})
    with pytest.raises(ConfigError, match=r"default.topic.config.*must be a dict"):
        Producer({**NOWHERE, "default.topic.config": "acks=1"})


def test_request_timeout_counts_before_socket_timeout() -> None:
    selected, ignored = select_settings({"request.timeout.ms": 5, "socket.timeout.ms": 7}, OWN["P"], "P")
    assert selected == {"request.timeout.ms": 5}
    assert ignored == {"socket.timeout.ms": '"request.timeout.ms" is given too, and counts'}


@pytest.fixture
def own_logger() -> Iterator[tuple[logging.Logger, list[str]]]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("an.application")
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, lines
    logger.removeHandler(handler)
    logger.propagate = True


@pytest.mark.parametrize("scope", CLIENTS)
def test_a_logger_of_the_application_gets_what_clients_log(
    scope: str, own_logger: tuple[logging.Logger, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.cluster.config._warned", set())
    logger, lines = own_logger
    with CLIENTS[scope]({**NOWHERE, "debug": "all"}, logger=logger):
        assert [line.partition(":")[0] for line in lines] == ['Configuration "debug" has no effect']
