"""`Membership`: makes one worker of the group lead.

The workers are a consumer group that subscribes to the config topic, which has one partition: whoever has it leads. One
thread calls `step` again and again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Protocol

from tidelog import Consumer
from tidelog_connect.herder.records import Record
from tidelog_connect.server.settings import WorkerSettings
from tidelog_connect.server.topic_storage import TopicStorage
from tidelog_foundation.errors import TidelogError

logger = logging.getLogger(__name__)

_HEARTBEATS = 3
"""Heartbeats in a session."""


class Member(Protocol):
    """The work of a member of the group, which it does while it leads."""

    wake: threading.Event

    @property
    def leads(self) -> bool:
        """True between `lead` and `resign`."""
        ...

    def lead(self, epoch: int) -> None:
        """Begin the work. Each leader of the group has a higher epoch than those before it."""
        ...

    def resign(self) -> None:
        """End the work, if it leads."""
        ...

    def follow(self) -> None:
        """Forget the records that were replayed; all of them come again."""
        ...

    def replay(self, record: Record, offset: int) -> None:
        """Apply a record of the group's topics."""
        ...

    def step(self) -> None:
        """Do what is to be done at present.

        Raises:
            TidelogError: this member can lead no more.
        """
        ...


class Membership:
    """A member's place in its group. Not thread-safe."""

    def __init__(self, settings: WorkerSettings, worker: Member, storage: TopicStorage) -> None:
        self._worker, self._storage = worker, storage
        self._config = settings.worker
        self._consumer = Consumer(self._group_settings(settings.client))
        self._consumer.subscribe([self._config.config_storage_topic])
        self._storage.rewind()

    def step(self, wait_s: float) -> None:
        """Follow the group for about the time given: take or give up the lead, replay records, or supervise."""
        try:
            # Its records are read by others; the consumer is paused as soon as it has the partition.
            self._consumer.poll(0)
            assigned = self._consumer.assignment()
            if assigned:
                self._consumer.pause(assigned)
            if assigned and not self._worker.leads:
                self._lead()
            elif not assigned and self._worker.leads:
                self._resign()
            if self._worker.leads:
                self._worker.wake.wait(wait_s)
                self._worker.wake.clear()
                self._worker.step()
            else:
                for record, offset in self._storage.news(wait_s):
                    self._worker.replay(record, offset)
        except TidelogError as error:
            logger.warning("worker %s lost its place: %s", self._config.worker_id, error.message)
            self._resign()
            self._worker.wake.wait(wait_s)

    def close(self) -> None:
        """Leave the group, so that another worker leads at once."""
        self._worker.resign()
        self._storage.release()
        self._consumer.close()

    def _lead(self) -> None:
        epoch = self._storage.take_lead(self._config.worker_id, self._config.url)
        for record, offset in self._storage.read_to_end():
            self._worker.replay(record, offset)
        self._worker.lead(epoch)

    def _resign(self) -> None:
        self._worker.resign()
        self._storage.release()
        self._worker.follow()
        self._storage.rewind()

    def _group_settings(self, client: Mapping[str, str]) -> dict[str, object]:
        session_ms = self._config.session_timeout_ms
        return {
            **client,
            "group.id": self._config.group_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": max(session_ms // _HEARTBEATS, 1),
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
        }
