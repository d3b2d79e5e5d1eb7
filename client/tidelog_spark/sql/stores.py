"""The places that keep a catalog: a folder of YAML files, or a compacted topic of the cluster. Blocking."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from tidelog import Consumer, Producer, TopicPartition
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for
from tidelog_foundation.replaced_files import replace_file
from tidelog_spark.sql.catalog import Catalog, Changes, parse_catalog, to_yaml
from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.topics import Topics

CATALOG_TOPIC = "__tidelog_sql"
MAX_DEFINITION_BYTES = 900_000
"""A definition fits one record of a topic with the default limits."""
_SUFFIX = ".yaml"
_REPLICAS = 3
_POLL_S = 0.5


class Store(Protocol):
    """A place that keeps definitions by key, each as a text of YAML."""

    def read(self) -> Catalog:
        """Return the present catalog.

        Raises:
            TidelogError: it cannot be read, or a definition is not valid.
        """
        ...

    def write(self, changes: Changes) -> None:
        """Apply changes; those of a relation come before those of the query that writes it.

        Raises:
            TidelogError: a change may not have been applied.
        """
        ...


class FolderStore:
    """A folder with a file per definition, such as ``relations/orders.yaml``. A reader never sees a part of a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> Catalog:
        """Return the present catalog."""
        texts: dict[str, str] = {}
        for path in sorted(self._folder.glob(f"*/*{_SUFFIX}")):
            try:
                texts[str(path.relative_to(self._folder).with_suffix(""))] = path.read_text()
            except FileNotFoundError:
                continue  # deleted since it was listed
            except UnicodeDecodeError as error:
                raise SqlError(f"{path}: not UTF-8") from error
        return parse_catalog(texts)

    def write(self, changes: Changes) -> None:
        """Apply changes."""
        for key, text in _texts(changes).items():
            path = self._folder / f"{key}{_SUFFIX}"
            if text is None:
                path.unlink(missing_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, text.encode())


class TopicStore:
    """The topic `CATALOG_TOPIC`, whose records are definitions by key. What was read before is not read again.

    Changes of one statement are one transaction.
    """

    def __init__(self, settings: Mapping[str, str], topics: Topics, timeout_s: float) -> None:
        self._settings = dict(settings)
        self._topics = topics
        self._timeout_s = timeout_s
        self._consumer: Consumer | None = None
        self._texts: dict[str, str] = {}
        self._partition = TopicPartition(CATALOG_TOPIC, 0, 0)

    def read(self) -> Catalog:
        """Return the present catalog; it is empty if the topic does not exist."""
        if self._consumer is None:
            if not self._topics.exists(CATALOG_TOPIC):
                return Catalog()
            self._consumer = Consumer({**self._settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
            self._consumer.assign([self._partition])
        self._read_to_end(self._consumer)
        return parse_catalog(self._texts)

    def write(self, changes: Changes) -> None:
        """Apply changes."""
        texts = _texts(changes)
        if not self._topics.exists(CATALOG_TOPIC):
            self._topics.create(CATALOG_TOPIC, 1, _REPLICAS, {"cleanup.policy": "compact"})
        settings = {**self._settings, "transactional.id": f"tidelog-sql-{uuid4().hex}"}
        with Producer(settings) as producer:
            producer.init_transactions(self._timeout_s)
            producer.begin_transaction()
            for key, text in texts.items():
                producer.produce(CATALOG_TOPIC, None if text is None else text.encode(), key.encode(), partition=0)
            producer.commit_transaction(self._timeout_s)

    def close(self) -> None:
        """Stop reading."""
        if self._consumer is not None:
            self._consumer.close()

    def _read_to_end(self, consumer: Consumer) -> None:
        _, end = consumer.get_watermark_offsets(self._partition, timeout=self._timeout_s)
        deadline = time.monotonic() + self._timeout_s
        while consumer.position([self._partition])[0].offset < end:
            message = consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() >= deadline:
                    raise error_for(ErrorCode._TIMED_OUT, f"the topic {CATALOG_TOPIC} was not read up to {end} in time")
                continue
            failed = message.error()
            if failed is not None:
                if failed.code() == KafkaError._PARTITION_EOF:  # type: ignore[attr-defined]
                    return
                raise TidelogError(failed)
            self._apply(message.key() or b"", message.value())

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._texts.pop(key.decode(), None)
        else:
            self._texts[key.decode()] = value.decode()


def _texts(changes: Changes) -> dict[str, str | None]:
    texts = {key: None if definition is None else to_yaml(definition) for key, definition in changes.items()}
    for key, text in texts.items():
        size = len((text or "").encode())
        if size > MAX_DEFINITION_BYTES:
            raise SqlError(f"{key}: the definition has {size} bytes; at most {MAX_DEFINITION_BYTES} are possible")
    return texts
