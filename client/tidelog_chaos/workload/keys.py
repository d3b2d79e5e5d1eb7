"""The keys of a run: partitions that are written to for a while and then replaced by new ones.

A generation is the partitions of a few topics. Writers move to the next one when theirs has had its writes; a separate
thread creates its topics in advance, because that takes long while faults are active. Values count up per key, so that
each occurs once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from tidelog.admin import AdminClient, NewTopic
from tidelog_chaos.background import BackgroundThread
from tidelog_foundation.errors import ErrorCode, TidelogError

logger = logging.getLogger(__name__)

_CREATE_TIMEOUT_S = 15.0
_PAUSE_S = 0.5
_AHEAD = 0.5


def key_of(topic: str, partition: int) -> str:
    """Return the key of a partition in a history."""
    return f"{topic}-{partition}"


def partition_of(key: str) -> tuple[str, int]:
    """Return the topic and the number of a key."""
    topic, _, number = key.rpartition("-")
    return topic, int(number)


class Keys(BackgroundThread):
    """Hands out keys and values to writers, thread-safe; :meth:`start` creates the first generation."""

    def __init__(
        self,
        create: Callable[[Sequence[str]], None],
        prefix: str,
        topics: int,
        partitions: int,
        writes_per_key: int,
    ) -> None:
        super().__init__("topics")
        self._create = create
        self._prefix = prefix
        self._topics = topics
        self._partitions = partitions
        self._writes_per_generation = writes_per_key * topics * partitions
        self._lock = threading.Lock()
        self._generations: list[list[str]] = []
        self._writes = 0
        self._values: dict[str, int] = {}
        self._is_wanted = threading.Event()

    def start(self) -> None:
        """Create the first topics; raise TidelogError if that fails."""
        self._create_next()
        super().start()

    def request_stop(self) -> None:
        """Create no more topics."""
        with self._lock:
            super().request_stop()
            self._is_wanted.set()

    @property
    def all(self) -> list[str]:
        """Every key so far."""
        with self._lock:
            return [key for generation in self._generations for key in generation]

    @property
    def topics(self) -> list[str]:
        """Every topic so far."""
        return list(dict.fromkeys(partition_of(key)[0] for key in self.all))

    @property
    def written(self) -> list[str]:
        """The keys that are written to now."""
        with self._lock:
            return list(self._generations[self._current])

    @property
    def read(self) -> list[str]:
        """The keys that are read now: those that are written to, and those before them."""
        with self._lock:
            return [
                k for generation in self._generations[max(0, self._current - 1) : self._current + 1] for k in generation
            ]

    def next_value(self, key: str) -> int:
        """Return a value that is new for the key."""
        with self._lock:
            self._writes += 1
            value = self._values[key] = self._values.get(key, 0) + 1
            if self._writes >= (len(self._generations) - 1 + _AHEAD) * self._writes_per_generation:
                self._is_wanted.set()
            return value

    @property
    def _current(self) -> int:
        return min(self._writes // self._writes_per_generation, len(self._generations) - 1)

    def _run(self) -> None:
        while self._is_wanted.wait() and not self._stopping.is_set():
            try:
                self._create_next()
                self._has_created()
            except (TidelogError, TimeoutError) as error:
                logger.info("the next topics are not there yet: %s", error)
                self._stopping.wait(_PAUSE_S)

    def _has_created(self) -> None:
        """Wait for the next request; a request to stop, which may have come meanwhile, is not lost."""
        with self._lock:
            if not self._stopping.is_set():
                self._is_wanted.clear()

    def _create_next(self) -> None:
        first = len(self._generations) * self._topics
        names = [f"{self._prefix}-{number}" for number in range(first, first + self._topics)]
        self._create(names)
        keys = [key_of(name, partition) for partition in range(self._partitions) for name in names]
        with self._lock:
            self._generations.append(keys)


def create_topics(
    admin: AdminClient, names: Sequence[str], partitions: int, factor: int, config: dict[str, str]
) -> None:
    """Create topics; accept those that an earlier attempt created.

    Raises:
        TidelogError, TimeoutError: One cannot be created now.
    """
    futures = admin.create_topics(
        [NewTopic(name, partitions, factor, config=config) for name in names], operation_timeout=_CREATE_TIMEOUT_S
    )
    for name, future in futures.items():
        try:
            future.result(timeout=2 * _CREATE_TIMEOUT_S)
        except TimeoutError:
            raise TimeoutError(f"the topic {name} was not created in {2 * _CREATE_TIMEOUT_S:.0f} s") from None
        except TidelogError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
