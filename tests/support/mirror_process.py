"""A mirror in a thread of its own, between clusters of a test."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tidelog_mirror.flow_worker import FlowWorker
from tidelog_mirror.process import MirrorProcess, selected_flows
from tidelog_mirror.settings import parse_mirror_settings

FAST = {
    "replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "3",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "sync.topic.acls.interval.seconds": "1",
    "consumer.fetch.max.wait.ms": "50",
}
"""Settings of a mirror between small clusters that shows everything within seconds."""


class RunningMirror:
    """A mirror that runs from the beginning of a ``with`` block to its end, where it stops by itself."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._config = parse_mirror_settings({**FAST, **settings})
        self._thread = threading.Thread(target=self._run, name="mirror")
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.process: MirrorProcess | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self.process is not None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.process.stop)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the mirror has not stopped"
        if self._failure is not None and error is None:
            raise self._failure

    @property
    def worker(self) -> FlowWorker:
        """The first flow."""
        assert self.process is not None
        return self.process.workers[0]

    def crash(self) -> None:
        """Cancel the mirror wherever it is, as the end of its process would."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(20)

    def _run(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self._failure = error

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self.process = MirrorProcess(self._config, selected_flows(self._config, ()))
        self._started.set()
        await self.process.run()
