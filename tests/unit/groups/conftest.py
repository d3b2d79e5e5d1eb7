from __future__ import annotations

import pytest
from group_shards import ShardHarness


@pytest.fixture
def harness() -> ShardHarness:
    return ShardHarness()
