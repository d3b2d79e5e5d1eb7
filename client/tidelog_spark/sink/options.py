"""The options of ``format("tidelog")`` for writing, validated before any record is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.cluster.security import SecurityConfig
from tidelog_foundation.config import at_least, config_keys, one_of, parse_config, setting
from tidelog_foundation.records import CODECS
from tidelog_spark.options import ConnectionOptions, spelled

EXACTLY_ONCE = "exactly-once"
_SPARKS_OWN = ("checkpointlocation", "path", "queryname")
"""Options of Spark's writers themselves, which they pass on."""
_CLIENT_ID = "tidelog-spark"


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
    def producer(self) -> dict[str, str]:
        """The settings of the producers of rows."""
        own = {"compression.type": self.options.compression_type}
        return {**self.client, **own, "message.timeout.ms": str(self.options.message_timeout_ms)}


def sink_plan(raw: Mapping[str, str]) -> SinkPlan:
    """Parse Spark's options, whose keys may be in any case.

    Raises:
        ConfigError: a key is unknown (the nearest is named), missing or given twice, a value is out of its limits, or a
            reference to a config provider has no value.
    """
    named = spelled({key: value for key, value in raw.items() if key.lower() not in _SPARKS_OWN}, SinkOptions)
    options = parse_config(SinkOptions, named)
    security = {key: value for key, value in named.items() if key in config_keys(SecurityConfig)}
    base = {"bootstrap.servers": options.bootstrap_servers, "client.id": _CLIENT_ID}
    return SinkPlan(options, {**base, **security})
