"""The options of ``format("tidelog")`` for writing, validated before any record is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from urllib.parse import quote

from tidelog.cluster.config import ClientConfig
from tidelog.cluster.security import SecurityConfig
from tidelog_foundation.config import at_least, between, config_keys, one_of, parse_config, setting
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.records import CODECS
from tidelog_spark.source.options import ConnectionOptions, spelled

EXACTLY_ONCE = "exactly-once"
_SPARKS_OWN = ("checkpointlocation", "path", "queryname")
"""Options of Spark's writers themselves, which they pass on."""
_CLIENT_ID = "tidelog-spark"
_MAX_APP_ID_BYTES = 256
_REQUEST_TIMEOUT_MS = 5_000
"""A paused node holds up a commit for this long, before another one is asked."""


def _app_id(value: str) -> None:
    if not 1 <= len(value.encode()) <= _MAX_APP_ID_BYTES:
        raise ValueError(f"must have 1 to {_MAX_APP_ID_BYTES} bytes")


@dataclass(frozen=True, slots=True)
class SinkOptions(ConnectionOptions):
    """The user's options for writing."""

    topic: str | None = setting(None, "The topic of all rows; without it, the column topic has the topic of each row.")
    semantics: str = setting(
        EXACTLY_ONCE,
        "exactly-once: each batch is committed whole and once, which needs transaction.two.phase.commit.enable on the "
        "nodes; at-least-once: rows are visible as they are written, and again if a task or a batch is repeated.",
        one_of(EXACTLY_ONCE, "at-least-once"),
        key="sink.semantics",
    )
    compression_type: str = setting(
        "none",
        "The compression codec of batches.",
        one_of(*CODECS),
        aliases=("kafka.compression.type",),
        key="compression.type",
    )
    message_timeout_ms: int = setting(
        300_000,
        "The time after which a task fails whose records the nodes do not store, in milliseconds.",
        at_least(1),
        aliases=("kafka.delivery.timeout.ms",),
        key="message.timeout.ms",
    )
    topic_metadata_propagation_max_ms: int = setting(
        5_000,
        "The time after which a task fails whose topic the nodes do not have, or have no more, in milliseconds.",
        between(0, 3_600_000),
        aliases=("kafka.max.block.ms",),
        key="topic.metadata.propagation.max.ms",
    )
    message_max_bytes: int = setting(
        1_000_000,
        "The maximum size of a row's record, and of a batch with more than one record, in bytes; a topic's "
        "max.message.bytes limits both as well.",
        between(1_000, 1_000_000_000),
        aliases=("kafka.max.request.size",),
        key="message.max.bytes",
    )
    txn_app_id: str | None = setting(
        None,
        "The application that numbers its writes; a write to the topic is dropped unless its number is above the last "
        "committed one of the application.",
        _app_id,
        key="txnAppId",
    )
    txn_version: int | None = setting(
        None,
        "The number of this write, such as that of the batch in foreachBatch.",
        between(0, 2**63 - 1),
        key="txnVersion",
    )

    @property
    def application_sink(self) -> str | None:
        """The sink of txnAppId at the topic, as Delta Lake numbers the writes to each table; None without txnAppId."""
        if self.txn_app_id is None:
            return None
        parts = ("app", quote(self.txn_app_id, safe=""), self.topic)
        return ":".join(part for part in parts if part is not None)

    @property
    def is_exactly_once(self) -> bool:
        """True if each batch is committed whole and once."""
        return self.semantics == EXACTLY_ONCE


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """The options of one write, and the settings of the clients that do it."""

    options: SinkOptions
    client: Mapping[str, str]

    @property
    def client_config(self) -> ClientConfig:
        """The settings of the client that reads the journal and ends transactions."""
        security = {field.name: getattr(self.options, field.name) for field in fields(SecurityConfig)}
        return ClientConfig(
            bootstrap_servers=tuple(part.strip() for part in self.options.bootstrap_servers.split(",")),
            client_id=_CLIENT_ID,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            **security,
        )

    @property
    def producer(self) -> dict[str, str]:
        """The settings of the producers of rows."""
        options = self.options
        return {
            **self.client,
            "compression.type": options.compression_type,
            "message.max.bytes": str(options.message_max_bytes),
            "message.timeout.ms": str(options.message_timeout_ms),
            "topic.metadata.propagation.max.ms": str(options.topic_metadata_propagation_max_ms),
        }


def sink_plan(raw: Mapping[str, str]) -> SinkPlan:
    """Parse Spark's options, whose keys may be in any case.

    Raises:
        ConfigError: a key is unknown (the nearest is named), missing or given twice, a value is out of its limits, or a
            reference to a config provider has no value.
    """
    named = spelled({key: value for key, value in raw.items() if key.lower() not in _SPARKS_OWN}, SinkOptions)
    options = parse_config(SinkOptions, named)
    _check_application(options)
    security = {key: value for key, value in named.items() if key in config_keys(SecurityConfig)}
    base = {"bootstrap.servers": options.bootstrap_servers, "client.id": _CLIENT_ID}
    return SinkPlan(options, {**base, **security})


def operator_plan(settings: Mapping[str, str]) -> SinkPlan:
    """Return a plan for an operator's client settings, of which those of connections and security count.

    Raises:
        ConfigError: a value is not valid.
    """
    known = config_keys(ConnectionOptions)
    return sink_plan({key: value for key, value in settings.items() if key in known})


def check_of_stream(options: SinkOptions) -> None:
    """Check that no option is for batch queries alone.

    Raises:
        ConfigError: txnAppId is set: the query has an id and numbers its batches itself.
    """
    if options.txn_app_id is not None:
        raise ConfigError(
            "txnAppId and txnVersion are for df.write, as in foreachBatch; writeStream numbers its batches itself"
        )


def _check_application(options: SinkOptions) -> None:
    given = {"txnAppId": options.txn_app_id, "txnVersion": options.txn_version}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 1:
        raise ConfigError(f"the options txnAppId and txnVersion belong together: {missing[0]} is missing")
    if not missing and not options.is_exactly_once:
        raise ConfigError(f'txnAppId needs sink.semantics={EXACTLY_ONCE}, but it is "{options.semantics}"')
