from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.testing import LocalCluster


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Three controllers and three nodes."""
    with LocalCluster(controllers=3, nodes=3) as running:
        yield running
