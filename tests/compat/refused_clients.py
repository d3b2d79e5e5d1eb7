"""Clients whose connection or login a cluster refuses: each returns the text of the error that it shows its user.

Settings have librdkafka's names; ``token`` is a bearer token.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import kafka.net.sasl.oauth
from compat.jars import QUICK_JAVA, java, kafka_libs
from compat.java_tools import TOOLS, run

import tidelog
from tidelog import aio
from tidelog.testing import LocalCluster

TOPIC = "refused"
_DEADLINE_S = 40.0
_TRY_S = 10.0
_PAUSE_S = 0.1
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_FILE_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True, slots=True)
class Access:
    """The addresses of a cluster, and the settings with which a client connects."""

    cluster: LocalCluster
    settings: Mapping[str, str]
    token_file: Path | None = None
    """The file from which Java reads the token; its JVM has to permit its URL."""

    def librdkafka(self) -> dict[str, Any]:
        """Return the settings of confluent-kafka, and of Tidelog's clients, without the addresses."""
        settings: dict[str, Any] = {key: value for key, value in self.settings.items() if key != "token"}
        if token := self.settings.get("token"):
            settings["oauth_cb"] = lambda _: (token, time.time() + 3_600)
        return settings

    def python(self, provider: type[Any]) -> dict[str, Any]:
        """Return the settings that kafka-python and aiokafka share; ``provider`` is their base class of tokens."""
        given = self.settings
        settings: dict[str, Any] = {
            "bootstrap_servers": self.cluster.kafka_bootstrap_servers,
            "security_protocol": given["security.protocol"].upper(),
            "ssl_context": self._tls(),
        }
        if "sasl.mechanisms" in given:
            settings["sasl_mechanism"] = given["sasl.mechanisms"]
        if "sasl.username" in given:
            settings |= {
                "sasl_plain_username": given["sasl.username"],
                "sasl_plain_password": given["sasl.password"],
            }
        if "token" in given:
            settings["sasl_oauth_token_provider"] = provider()
        return settings

    def java(self, folder: Path) -> Path:
        """Write the properties of Java's clients; return the file."""
        given = self.settings
        lines = {
            "security.protocol": given["security.protocol"].upper(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": given["ssl.ca.location"],
        }
        if store := given.get("ssl.certificate.location"):
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": store}
        if mechanism := given.get("sasl.mechanisms"):
            login = f"{_MODULES[mechanism]} required"
            if "sasl.username" in given:
                login += f' username="{given["sasl.username"]}" password="{given["sasl.password"]}"'
            lines |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{login};"}
        if token := given.get("token"):
            assert self.token_file is not None, "Java needs a file for the token"
            self.token_file.write_text(token)
            lines |= {
                "sasl.oauthbearer.token.endpoint.url": self.token_file.as_uri(),
                "sasl.login.callback.handler.class": _FILE_HANDLER,
            }
        path = folder / "client.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return path

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.settings["ssl.ca.location"])
        if store := self.settings.get("ssl.certificate.location"):
            context.load_cert_chain(store)
        return context


class RefusedClient(ABC):
    """A client, unmodified."""

    name: str

    @abstractmethod
    def refusal(self, access: Access) -> str:
        """Connect, and return the error."""

    @abstractmethod
    def loses(self, access: Access, revoke: Callable[[], None]) -> str:
        """Connect and send records; call ``revoke`` after the first one, and return the error that follows."""


class Sdk(RefusedClient):
    name = "tidelog"

    def refusal(self, access: Access) -> str:
        with tidelog.AdminClient(_own(access)) as admin:
            return _error_of(lambda: admin.list_topics(timeout=_TRY_S))

    def loses(self, access: Access, revoke: Callable[[], None]) -> str:
        errors: list[str] = []
        settings = _own(access) | {"error_cb": lambda error: errors.append(str(error)), "message.timeout.ms": 3_000}
        with tidelog.Producer(settings) as producer:

            def send() -> None:
                producer.produce(TOPIC, b"1")
                producer.poll(_PAUSE_S)

            producer.produce(TOPIC, b"1")
            assert producer.flush(_DEADLINE_S) == 0
            revoke()
            return _first(errors, send)


class Aio(RefusedClient):
    name = "tidelog.aio"

    def refusal(self, access: Access) -> str:
        async def main() -> str:
            async with aio.AdminClient(_own(access)) as admin:
                try:
                    await admin.list_topics(timeout=_TRY_S)
                except tidelog.KafkaException as error:
                    return str(error)
            return ""

        return asyncio.run(main())

    def loses(self, access: Access, revoke: Callable[[], None]) -> str:
        async def main() -> str:
            async with aio.AdminClient(_own(access)) as admin:
                await admin.list_topics(timeout=_TRY_S)
                revoke()
                ends = time.monotonic() + _DEADLINE_S
                while time.monotonic() < ends:
                    try:
                        await admin.list_topics(timeout=_TRY_S)
                    except tidelog.KafkaException as error:
                        return str(error)
                    await asyncio.sleep(_PAUSE_S)
            return ""

        return asyncio.run(main())


class Confluent(RefusedClient):
    name = "confluent-kafka"

    def refusal(self, access: Access) -> str:
        errors: list[str] = []
        client = confluent_kafka.admin.AdminClient(_confluent(access, errors))
        return _first(errors, lambda: client.poll(_PAUSE_S))

    def loses(self, access: Access, revoke: Callable[[], None]) -> str:
        errors: list[str] = []
        producer = confluent_kafka.Producer(_confluent(access, errors))
        producer.produce(TOPIC, b"1")
        assert producer.flush(_DEADLINE_S) == 0
        revoke()
        return _first(errors, lambda: producer.poll(_PAUSE_S))


class KafkaPython(RefusedClient):
    name = "kafka-python"

    def refusal(self, access: Access) -> str:
        with _logged("kafka") as lines:
            said = _error_of(
                lambda: kafka.KafkaAdminClient(**access.python(_kafka_python_token(access)), bootstrap_timeout_ms=4_000)
            )
        return "\n".join([said, *lines])

    def loses(self, access: Access, revoke: Callable[[], None]) -> str:
        with _logged("kafka") as lines:
            settings = access.python(_kafka_python_token(access))
            producer = kafka.KafkaProducer(
                **settings, max_block_ms=10_000, delivery_timeout_ms=10_000, request_timeout_ms=5_000
            )
            try:
                producer.send(TOPIC, b"1").get(_DEADLINE_S)
                revoke()
                said = self._loss(producer, lines)
            finally:
                producer.close(1)
        return "\n".join([said, *lines])

    def _loss(self, producer: Any, lines: list[str]) -> str:
        """Send until the library has read a refusal; it does not always do so before the end of the connection."""
        said, ends = "", time.monotonic() + _DEADLINE_S
        while time.monotonic() < ends and not any("SaslAuthenticationFailed" in line for line in [said, *lines]):
            said = _error_of(lambda: producer.send(TOPIC, b"1").get(_TRY_S))
            time.sleep(_PAUSE_S)
        return said


class Aiokafka(RefusedClient):
    name = "aiokafka"

    def refusal(self, access: Access) -> str:
        async def main() -> str:
            producer = aiokafka.AIOKafkaProducer(**access.python(_aiokafka_token(access)))
            try:
                await producer.start()
            except aiokafka.errors.KafkaError as error:
                return repr(error)
            finally:
                await producer.stop()
            return ""

        with _logged("aiokafka") as lines:
            said = asyncio.run(main())
        return "\n".join([said, *lines])

    def loses(self, access: Access, revoke: Callable[[], None]) -> str:
        async def main() -> str:
            producer = aiokafka.AIOKafkaProducer(**access.python(_aiokafka_token(access)), request_timeout_ms=4_000)
            await producer.start()
            try:
                await producer.send_and_wait(TOPIC, b"1")
                revoke()
                ends = time.monotonic() + _DEADLINE_S
                while time.monotonic() < ends:
                    await producer.send_and_wait(TOPIC, b"1")
                    await asyncio.sleep(_PAUSE_S)
            except aiokafka.errors.KafkaError as error:
                return repr(error)
            finally:
                await producer.stop()
            return ""

        with _logged("aiokafka") as lines:
            said = asyncio.run(main())
        return "\n".join([said, *lines])


class Java(RefusedClient):
    name = "java"

    def refusal(self, access: Access) -> str:
        with tempfile.TemporaryDirectory() as folder:
            servers = ("--bootstrap-server", access.cluster.kafka_bootstrap_servers)
            file = access.java(Path(folder))
            return run("kafka-topics", *servers, "--command-config", str(file), "--list").said

    def loses(self, access: Access, revoke: Callable[[], None]) -> str:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
            command = [java(), *QUICK_JAVA, "-cp", f"{kafka_libs()}/*", TOOLS["kafka-console-producer"], "--sync"]
            where = ["--bootstrap-server", access.cluster.kafka_bootstrap_servers, "--topic", TOPIC]
            where += ["--producer-property", "delivery.timeout.ms=4000", "--producer-property", "linger.ms=0"]
            where += ["--request-timeout-ms", "3000"]
            file = access.java(Path(folder))
            process = subprocess.Popen(
                [*command, *where, "--producer.config", str(file)],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                text=True,
            )
            assert process.stdin is not None
            try:
                self._type(process, access, revoke)
            finally:
                process.kill()
                process.wait()
            said.seek(0)
            return said.read()

    def _type(self, process: subprocess.Popen[str], access: Access, revoke: Callable[[], None]) -> None:
        """Write lines until the tool ends, or until the time is over; ``revoke`` once a line is stored."""
        assert process.stdin is not None
        begin, ends, is_revoked = _end_offset(access), time.monotonic() + 2 * _DEADLINE_S, False
        with contextlib.suppress(BrokenPipeError):
            while process.poll() is None and time.monotonic() < ends:
                process.stdin.write("line\n")
                process.stdin.flush()
                time.sleep(_PAUSE_S)
                if not is_revoked and _end_offset(access) > begin:
                    revoke()
                    is_revoked = True


CLIENTS: tuple[RefusedClient, ...] = (Sdk(), Aio(), Confluent(), KafkaPython(), Aiokafka(), Java())


def _end_offset(access: Access) -> int:
    with tidelog.Consumer({**_own(access), "group.id": "offsets"}) as consumer:
        _, end = consumer.get_watermark_offsets(tidelog.TopicPartition(TOPIC, 0), timeout=_TRY_S)
        return int(end)


def _own(access: Access) -> dict[str, Any]:
    return {"bootstrap.servers": access.cluster.bootstrap_servers, **access.librdkafka()}


def _confluent(access: Access, errors: list[str]) -> dict[str, Any]:
    return {
        "bootstrap.servers": access.cluster.kafka_bootstrap_servers,
        "error_cb": lambda error: errors.append(str(error)),
        "reconnect.backoff.ms": 1_000,
        "log_level": 0,
        **access.librdkafka(),
    }


def _first(errors: list[str], poll: Callable[[], object]) -> str:
    ends = time.monotonic() + _DEADLINE_S
    while not errors and time.monotonic() < ends:
        poll()
    return "\n".join(errors)


def _error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except (tidelog.KafkaException, kafka.errors.KafkaError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _kafka_python_token(access: Access) -> type[Any]:
    class Provider(kafka.net.sasl.oauth.AbstractTokenProvider):
        def __init__(self, **_: object) -> None:
            pass

        def token(self) -> str:
            return access.settings["token"]

    return Provider


def _aiokafka_token(access: Access) -> type[Any]:
    class Provider(aiokafka.abc.AbstractTokenProvider):
        async def token(self) -> str:
            return access.settings["token"]

    return Provider


@contextlib.contextmanager
def _logged(name: str) -> Iterator[list[str]]:
    """Collect the warnings and errors of a library, whose users see them in its log alone."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
