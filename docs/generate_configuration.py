"""Writes docs/configuration.md and docs/librdkafka.md, the references of all settings, from what declares them.

``python docs/generate_configuration.py`` exits with 1 when a committed page is stale; ``--write`` replaces them.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

from tidelog.config import describe
from tidelog.config.librdkafka import PROPERTIES, Effect, Property
from tidelog.config.settings import SettingInfo

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "configuration.md"
PROPERTIES_PAGE = DOCS / "librdkafka.md"

SECTIONS = (
    ("Controllers", "The properties file of `tidelog-quorum`.", "tidelog_quorum.server.config:QuorumConfig"),
    (
        "Storage nodes",
        "The properties file of `tidelog-node`. What can change at run time is changed with the admin client's\n"
        '`incremental_alter_configs`: on one node (its id), which counts most, or on all (the name ""), which\n'
        "counts more than the file.",
        "tidelog_node.server.config:NodeConfig",
    ),
    ("Topics", "Given when a topic is created, or changed later.", "tidelog.config.topic:TopicConfig"),
    ("Groups", "Set on a group of the consumer protocol while it runs.", "tidelog.config.group:GroupConfig"),
    ("Producer", "Given to `tidelog.Producer`.", "tidelog.producer.config:ProducerConfig"),
    ("Consumer", "Given to `tidelog.Consumer`.", "tidelog.consumer.config:ConsumerConfig"),
    ("Admin client", "Given to `tidelog.AdminClient`.", "tidelog.cluster.config:ClientConfig"),
    (
        "Quorum admin client",
        "Given to `tidelog.admin.QuorumAdmin`.",
        "tidelog.admin.quorum:QuorumAdminConfig",
    ),
    ("Spark source", 'Options of `spark.read.format("tidelog")`.', "tidelog.spark.options:SourceOptions"),
)
"""Title, what the settings are given to, and the class, as ``module:Class``."""

_HEAD = """# Configuration

Keys, units and defaults are Kafka's wherever Kafka has the setting. A key that is unknown or a value out of its limits
ends the start with one line that says so. This page is generated: change the class that declares the setting, then run
`make docs`.
"""


_LIBRDKAFKA_HEAD = """# librdkafka's properties

Programs that were written for confluent-kafka bring the properties of librdkafka along. This page says what each one
does in Tidelog's clients:

- **works**: as in librdkafka, unless [configuration.md](configuration.md) says otherwise;
- **no effect**: it tunes what Tidelog does not have, and nothing that a program can observe depends on it. The client
  logs a warning once per process, or nothing where the value is what Tidelog does anyway;
- **refused**: ignoring it would take something away from the program, such as encryption. Values in parentheses are
  accepted.

A producer's property given to a consumer has no effect, and a consumer's given to a producer; an admin client reads
those of neither. With `security.protocol=plaintext`, other settings of TLS and SASL have no effect. A value of `None`
counts as not given, and `default.topic.config` may hold a dict of further settings. This page is generated from
`tidelog.config.librdkafka`: run `make docs`.

| property | for | effect | why |
|---|---|---|---|
"""
_CLIENTS = {"*": "all", "P": "producers", "C": "consumers"}


def main() -> int:
    """Compare the pages with the classes, or write them."""
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
