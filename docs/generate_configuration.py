"""Writes the references of all settings, docs/configuration.md and docs/librdkafka.md, from their declarations.

``python docs/generate_configuration.py`` exits with 1 when a committed page is stale; ``--write`` replaces them.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

from tidelog.cluster.librdkafka import PROPERTIES, Effect, Property
from tidelog_foundation.config import describe
from tidelog_foundation.config.settings import SettingInfo

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "configuration.md"
PROPERTIES_PAGE = DOCS / "librdkafka.md"

SECTIONS = (
    (
        "Controllers",
        "Settings in the file of `tidelog-quorum`.",
        "tidelog_quorum.server.config:QuorumConfig",
    ),
    (
        "Storage nodes",
        "Settings in the file of `tidelog-node`. Settings that can change at run time are changed with\n"
        "`tidelog config set` or `incremental_alter_configs`: for one node (its id), or for all nodes (an empty\n"
        "name). A node's own setting overrides the setting for all nodes, which overrides the file.",
        "tidelog_node.server.config:NodeConfig",
    ),
    (
        "Topics",
        "Settings of topics, which override those of nodes.",
        "tidelog_foundation.config.topic:TopicConfig",
    ),
    (
        "Groups",
        "Settings of groups of the consumer protocol.",
        "tidelog_foundation.config.group:GroupConfig",
    ),
    (
        "Client metrics",
        "Settings of [subscriptions to the metrics of clients](monitoring.md#metrics-of-clients) (KIP-714).",
        "tidelog_foundation.config.client_metrics:ClientMetricsConfig",
    ),
    (
        "Cluster links",
        "Settings of [cluster links](linking.md), for `tidelog link create` and `tidelog link alter`.",
        "tidelog_foundation.link_settings:LinkConfig",
    ),
    ("Producer", "Settings of `tidelog.Producer`.", "tidelog.producer.config:ProducerConfig"),
    ("Consumer", "Settings of `tidelog.Consumer`.", "tidelog.consumer.config:ConsumerConfig"),
    ("Admin client", "Settings of `tidelog.AdminClient`.", "tidelog.cluster.config:ClientConfig"),
    (
        "Quorum admin client",
        "Settings of `tidelog.admin.QuorumAdmin`.",
        "tidelog.admin.quorum:QuorumAdminConfig",
    ),
    ("Spark source", 'Options of `spark.read.format("tidelog")`.', "tidelog_spark.source.options:SourceOptions"),
    ("Spark sink", 'Options of `DataFrame.write.format("tidelog")`.', "tidelog_spark.sink.options:SinkOptions"),
    (
        "Connect workers",
        "Settings in the file of [`tidelog connect`](connect.md), next to those of clients and of Spark (`spark.*`).",
        "tidelog_connect.server.settings:WorkerConfig",
    ),
    (
        "Mirrors",
        "Settings of the process in the file of [`tidelog mirror run`](mirroring.md), next to those of its clusters' "
        "clients (those of [cluster links](#cluster-links) without `consumer.offset.`) and of flows.",
        "tidelog_mirror.settings:ProcessConfig",
    ),
    (
        "Mirror flows",
        "Settings of flows in that file: `SOURCE->TARGET.KEY`, or `KEY` for all flows.",
        "tidelog_mirror.settings:FlowConfig",
    ),
)
"""Title, introduction and settings class of each section, the class as ``module:Class``."""

_HEAD = """# Configuration

Keys, units and defaults are Kafka's wherever Kafka has the setting. A process with an unknown key or an invalid value
exits at the start with one line that names it. This page is generated: change the class that declares the setting, then
run `make docs`.
"""


_LIBRDKAFKA_HEAD = """# librdkafka's properties

Programs written for confluent-kafka use librdkafka's properties. This page lists the effect of each one in Tidelog's
clients:

- **works**: the property works as in librdkafka, unless [Configuration](configuration.md) says otherwise.
- **no effect**: the property tunes something that Tidelog does not have, and programs cannot observe the difference.
  The client logs a warning once per process, or nothing if the value matches Tidelog's behavior.
- **refused**: ignoring the property would take something away from the program, such as encryption. Values in
  parentheses are accepted.

A producer's property has no effect in a consumer, nor a consumer's in a producer, and an admin client ignores both.
With `security.protocol=plaintext`, other properties of TLS and SASL have no effect. A value of `None` counts as not
set, and `default.topic.config` can contain a dict of further settings. This page is generated from
`tidelog.cluster.librdkafka`: run `make docs`.

| property | clients | effect | reason |
|---|---|---|---|
"""
_CLIENTS = {"*": "all", "P": "producers", "C": "consumers"}


def main() -> int:
    """Compare the pages with the declarations, or write them."""
    is_stale = False
    for path, fresh in ((PAGE, render()), (PROPERTIES_PAGE, render_librdkafka())):
        if "--write" in sys.argv[1:]:
            path.write_text(fresh, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != fresh:
            print(f"stale: docs/{path.name}; run `make docs`", file=sys.stderr)
            is_stale = True
    return int(is_stale)


def render() -> str:
    """Return the page of settings as Markdown."""
    sections = [f"\n## {title}\n\n{text}\n\n{_table(_load(path))}" for title, text, path in SECTIONS]
    return _HEAD + "".join(sections)


def render_librdkafka() -> str:
    """Return the page of librdkafka's properties as Markdown."""
    return _LIBRDKAFKA_HEAD + "".join(map(_property_row, sorted(PROPERTIES.values(), key=lambda p: p.name)))


def _property_row(known: Property) -> str:
    effect = known.effect.value
    if known.effect is Effect.REFUSED and known.accepted:
        effect += f" (`{'`, `'.join(known.accepted)}`)"
    return f"| `{known.name}` | {_CLIENTS[known.scope]} | {effect} | {known.reason} |\n"


def _load(path: str) -> type[Any]:
    module, _, name = path.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def _table(cls: type[Any]) -> str:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|", *map(_row, _required_first(cls))]
    return "\n".join(rows) + "\n"


def _required_first(cls: type[Any]) -> list[SettingInfo]:
    return sorted(describe(cls), key=lambda info: info.default is not dataclasses.MISSING)


def _row(info: SettingInfo) -> str:
    notes = [info.doc]
    if info.dynamic:
        notes.append("Can change at run time.")
    if info.secret:
        notes.append("Secret: never shown.")
    meaning = " ".join(note.strip() if note.strip().endswith(".") else f"{note.strip()}." for note in notes)
    cells = (f"`{info.key}`", info.type, _default(info), meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(info: SettingInfo) -> str:
    if info.default is dataclasses.MISSING:
        return "required"
    if info.default is None or info.default in ("", ()):
        return "not set"
    if info.secret:
        return "hidden"
    if isinstance(info.default, bool):
        return f"`{str(info.default).lower()}`"
    if isinstance(info.default, tuple):
        return f"`{','.join(map(str, info.default))}`"
    return f"`{info.default}`"


if __name__ == "__main__":
    sys.exit(main())
