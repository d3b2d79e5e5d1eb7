"""Rows in Spark's cache: released after the batch, and an error of the batch is not hidden by a JVM that has ended."""

from __future__ import annotations

from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from tidelog_connect.server.persisting import persisted


class Rows:
    """Rows whose release fails, if ``error`` is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.calls = error, list[str]()

    def persist(self) -> Rows:
        self.calls.append("persist")
        return self

    def unpersist(self) -> None:
        self.calls.append("unpersist")
        if self.error is not None:
            raise self.error


def test_rows_are_released_after_the_batch() -> None:
    rows = Rows()
    with persisted(cast(Any, rows)):
        assert rows.calls == ["persist"]
    assert rows.calls == ["persist", "unpersist"]


@pytest.mark.parametrize("error", [Py4JNetworkError("closed"), ConnectionRefusedError("refused")])
def test_error_of_a_batch_is_seen_although_the_jvm_has_ended(error: Exception) -> None:
    rows = Rows(error)
    with pytest.raises(ValueError, match="of the batch"), persisted(cast(Any, rows)):
        raise ValueError("of the batch")
    assert rows.calls[-1] == "unpersist"
