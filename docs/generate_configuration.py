"""Writes docs/configuration.md, the reference of all settings, from the classes that declare them.

``python docs/generate_configuration.py`` exits with 1 when the committed page is stale; ``--write`` replaces it.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

from tidelog.config import describe
from tidelog.config.settings import SettingInfo

PAGE = Path(__file__).resolve().parent / "configuration.md"

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


def main() -> int:
    """Compare the page with the classes, or write it."""
    fresh = render()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(fresh, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == fresh:
        return 0
    print(f"stale: docs/{PAGE.name}; run `make docs`", file=sys.stderr)
    return 1


def render() -> str:
    """Return the page as Markdown."""
    sections = [f"\n## {title}\n\n{text}\n\n{_table(_load(path))}" for title, text, path in SECTIONS]
    return _HEAD + "".join(sections)


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
