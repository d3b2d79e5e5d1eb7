"""The disk, the settings and the batches that the tests of the log share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_batches import produced_batch, replicated_batch
from memory_disk import MemoryFiles

from tidelog_node.log import LogConfig


@pytest.fixture
def disk() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def config() -> LogConfig:
    """Segments of a few batches and an index entry for about every second one."""
    return LogConfig(segment_bytes=600, index_interval_bytes=100, segment_index_bytes=1024, max_message_bytes=500)


@pytest.fixture
def batch_of() -> Callable[..., bytes]:
    return produced_batch


@pytest.fixture
def replicated() -> Callable[..., bytes]:
    return replicated_batch
