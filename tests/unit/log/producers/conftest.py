"""Headers of data, of transactional data and of markers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from producer_headers import CONTROL, TRANSACTIONAL, header_of

from tidelog_foundation.records import RecordBatchHeader


@pytest.fixture
def header() -> Callable[..., RecordBatchHeader]:
    return header_of


@pytest.fixture
def transactional() -> Callable[..., RecordBatchHeader]:
    return lambda *args, **fields: header_of(*args, attributes=TRANSACTIONAL, **fields)


@pytest.fixture
def control() -> Callable[..., RecordBatchHeader]:
    """A marker's header: ``control(producer_id, epoch, offset=...)``."""
    return lambda producer_id, epoch, **fields: header_of(
        producer_id, epoch, -1, attributes=TRANSACTIONAL | CONTROL, **fields
    )
