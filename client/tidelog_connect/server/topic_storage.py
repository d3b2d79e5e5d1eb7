"""`TopicStorage`: the config, status and offset topics of a cluster. Blocking.

The leader writes by one transactional id, whose initialization fences its predecessor (KIP-618). Readers see committed
records only.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tidelog import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from tidelog.admin import ConsumerGroupTopicPartitions
from tidelog.message import Message
from tidelog_connect.connectors.offsets import partition_key
from tidelog_connect.herder.records import Record, Store, decoded, leader_record
from tidelog_connect.rest.internal_requests import new_session_key
from tidelog_connect.server.settings import WorkerSettings
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for

_TIMEOUT_S = 30.0
_POLL_S = 0.2
_NUMBER = "number"
_COMPACTED = {"cleanup.policy": "compact"}


class CompactedTopic:
    """A reader of all partitions of a topic, which keeps its position."""

    def __init__(self, client: Mapping[str, str], topic: str, partitions: int) -> None:
        settings = {"enable.partition.eof": True, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({**client, **settings})
        self._partitions = [TopicPartition(topic, index, 0) for index in range(partitions)]
        self._consumer.assign(self._partitions)

    def read(self, timeout_s: float) -> Message | None:
        """Return the next record, or None if there is none in time.

        Raises:
            TidelogError: the topic cannot be read.
        """
        message = self._consumer.poll(timeout_s)
        error = None if message is None else message.error()
        if error is None:
            return message
        if error.code() == KafkaError._PARTITION_EOF:  # type: ignore[attr-defined]
            return None
        raise TidelogError(error)

    def read_to_end(self) -> Iterator[Message]:
        """Return the records up to the present ends of the partitions.

        Raises:
            TidelogError: the topic cannot be read to its end in time, such as behind an open transaction.
        """
        ends = {
            each.partition: self._consumer.get_watermark_offsets(each, timeout=_TIMEOUT_S)[1]
            for each in self._partitions
        }
        deadline = time.monotonic() + _TIMEOUT_S
        # The position is negative before the first record.
        while any(max(each.offset, 0) < ends[each.partition] for each in self._consumer.position(self._partitions)):
            message = self.read(_POLL_S)
            if message is not None:
                yield message
            elif time.monotonic() >= deadline:
                topic = self._partitions[0].topic
                raise error_for(ErrorCode._TIMED_OUT, f"the topic {topic} was not read up to {ends} in {_TIMEOUT_S} s")

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()


class TopicStorage:
    """The topics of a group of workers. ``forget_checkpoint`` deletes the checkpoint of a sink."""

    def __init__(self, settings: WorkerSettings, forget_checkpoint: Callable[[str], None]) -> None:
        self._settings = settings
        self._config = settings.worker
        self._forget_checkpoint = forget_checkpoint
        self._admin = AdminClient(settings.client)
        self._producer: Producer | None = None
        self._write_lock = threading.Lock()
        self._offsets_lock = threading.Lock()
        self._create_topics()
        self._offsets_topic = self._reader(self._config.offset_storage_topic)
        self._offsets: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._fences: dict[str, int] = {}
        self._readers: dict[Store, CompactedTopic] = {}

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return str(self._admin.describe_cluster().result().cluster_id)

    def close(self) -> None:
        """Close all clients."""
        self._close_readers()
        self._offsets_topic.close()
        self.release()

    def rewind(self) -> None:
        """Read the config and status topics from their beginnings next."""
        self._close_readers()
        self._readers = {
            Store.STATUS: self._reader(self._config.status_storage_topic),
            Store.CONFIG: self._reader(self._config.config_storage_topic),
        }

    def news(self, timeout_s: float) -> Iterator[tuple[Record, int]]:
        """Return records that are new, with their offsets, for about the time given."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for store, reader in self._readers.items():
                message = reader.read(timeout_s / 4)
                while message is not None:
                    yield from _decoded(store, message)
                    message = reader.read(0)

    def read_to_end(self) -> Iterator[tuple[Record, int]]:
        """Return all records up to the present ends of the config and status topics."""
        for store, reader in self._readers.items():
            for message in reader.read_to_end():
                yield from _decoded(store, message)

    def take_lead(self, worker_id: str, url: str) -> int:
        """Fence the former leader, write the leader's record, and return its offset: the epoch.

        Raises:
            TidelogError: the cluster does not answer, or another worker has taken the lead meanwhile.
        """
        self.release()
        transactional_id = f"connect-cluster-{self._config.group_id}"
        producer = Producer({**self._settings.client, "transactional.id": transactional_id})
        self._producer = producer
        producer.init_transactions(_TIMEOUT_S)
        offsets: list[int] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(int(message.offset() or 0))

        producer.begin_transaction()
        key, value = leader_record(worker_id, url, new_session_key()).encoded()
        producer.produce(self._config.config_storage_topic, value, key, partition=0, on_delivery=note)
        producer.commit_transaction(_TIMEOUT_S)
        producer.poll(0)
        if not offsets:
            raise error_for(ErrorCode._TIMED_OUT, "the delivery of the leader's record was not reported")
        return offsets[0]

    def release(self) -> None:
        """Write no more."""
        if self._producer is not None:
            self._producer.close(0)
            self._producer = None

    def write(self, records: Sequence[Record]) -> None:
        """Write records in one transaction."""
        topics = {
            Store.CONFIG: self._config.config_storage_topic,
            Store.STATUS: self._config.status_storage_topic,
        }
        self._transact([(topics[each.store], *each.encoded()) for each in records])

    def source_offsets(self, name: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the committed offsets of a source, up to date."""
        with self._offsets_lock:
            for message in self._offsets_topic.read_to_end():
                self._apply_offset(message)
            return dict(self._offsets.get(name, {}))

    def last_fence(self, name: str) -> int | None:
        """Return the number of a source's last fence, as of the last `source_offsets`."""
        return self._fences.get(name)

    def write_source_offsets(self, name: str, offsets: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Write offsets of a source; None deletes one."""
        topic = self._config.offset_storage_topic
        self._transact([(topic, *offset_record(name, key, offset)) for key, offset in offsets.items()])

    def sink_offsets(self, name: str) -> Mapping[tuple[str, int], int]:
        """Return the committed offsets of a sink's group."""
        group = sink_group(name)
        found = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions or () if each.offset >= 0}

    def write_sink_offsets(self, name: str, offsets: Mapping[tuple[str, int], int | None]) -> None:
        """Set offsets of a sink's group, and delete its checkpoint first."""
        self._forget_checkpoint(name)
        self.commit_sink_offsets(name, {key: offset for key, offset in offsets.items() if offset is not None})
        deleted = [TopicPartition(*key) for key, offset in offsets.items() if offset is None]
        if deleted:
            group = sink_group(name)
            request = [ConsumerGroupTopicPartitions(group, deleted)]
            _check(self._admin.delete_consumer_group_offsets(request)[group].result())

    def commit_sink_offsets(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set offsets of a sink's group."""
        if offsets:
            group = sink_group(name)
            request = [ConsumerGroupTopicPartitions(group, [TopicPartition(*key, at) for key, at in offsets.items()])]
            _check(self._admin.alter_consumer_group_offsets(request)[group].result())

    def partitions(self, topic: str) -> int:
        """Return the number of a topic's partitions; 0 if it does not exist."""
        found = self._admin.list_topics(timeout=_TIMEOUT_S).topics.get(topic)
        return 0 if found is None or found.error is not None else len(found.partitions)

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        found = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        return {name: len(each.partitions) for name, each in found.items() if each.error is None}

    def create_topic(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        """Create a topic unless it exists; -1 is the cluster's default."""
        try:
            self._admin.create_topics([NewTopic(topic, partitions, replicas, config=dict(config))])[topic].result()
        except TidelogError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def _transact(self, written: Sequence[tuple[str, bytes, bytes | None]]) -> None:
        with self._write_lock:
            producer = self._producer
            if producer is None:
                raise error_for(ErrorCode._STATE, "this worker does not lead")
            producer.begin_transaction()
            for topic, key, value in written:
                # The topic of configurations has one partition; in others, the key chooses it.
                producer.produce(topic, value, key)
            producer.commit_transaction(_TIMEOUT_S)

    def _apply_offset(self, message: Message) -> None:
        try:
            name, *rest = json.loads(message.key() or b"null")
            value = message.value()
            offset = None if value is None else json.loads(value)
            if not rest and offset is not None:
                self._fences[name] = int(offset[_NUMBER])
                return
            (partition,) = rest
            key = partition_key(partition)
        except (KeyError, TypeError, ValueError):
            return
        known = self._offsets.setdefault(name, {})
        if offset is None:
            known.pop(key, None)
        else:
            known[key] = offset

    def _create_topics(self) -> None:
        config = self._config
        nodes = len(self._admin.describe_cluster().result().nodes)
        replicas = min(config.storage_replication_factor, nodes)
        for topic, partitions in (
            (config.config_storage_topic, 1),
            (config.status_storage_topic, config.status_storage_partitions),
            (config.offset_storage_topic, config.offset_storage_partitions),
        ):
            self.create_topic(topic, partitions, replicas, _COMPACTED)
            deadline = time.monotonic() + _TIMEOUT_S
            while not self.partitions(topic):
                if time.monotonic() >= deadline:
                    raise error_for(ErrorCode._TIMED_OUT, f"the topic {topic} was created, but no node has it")
                time.sleep(_POLL_S)
        if self.partitions(config.config_storage_topic) != 1:
            raise error_for(
                ErrorCode.INVALID_CONFIG,
                f"config.storage.topic {config.config_storage_topic} must have one partition, but it has "
                f"{self.partitions(config.config_storage_topic)}",
            )

    def _reader(self, topic: str) -> CompactedTopic:
        return CompactedTopic(self._settings.client, topic, self.partitions(topic))

    def _close_readers(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers = {}


def sink_group(name: str) -> str:
    """Return the group of a sink's offsets."""
    return f"connect-{name}"


def offset_record(name: str, key: str, offset: Mapping[str, Any] | None) -> tuple[bytes, bytes | None]:
    """Return key and value of a source's offset; ``key`` is the JSON of its partition."""
    text = f"[{json.dumps(name)},{key}]"
    return text.encode(), None if offset is None else json.dumps(offset, separators=(",", ":")).encode()


def fence_record(name: str, number: int) -> tuple[bytes, bytes]:
    """Return key and value of a source's fence, the first record of a run. Kafka Connect skips this key."""
    return json.dumps([name]).encode(), json.dumps({_NUMBER: number}).encode()


def _decoded(store: Store, message: Message) -> Iterator[tuple[Record, int]]:
    record = decoded(store, message.key(), message.value())
    if record is not None:
        yield record, int(message.offset() or 0)


def _check(result: ConsumerGroupTopicPartitions) -> None:
    for each in result.topic_partitions or ():
        if each.error is not None:
            raise TidelogError(each.error)
