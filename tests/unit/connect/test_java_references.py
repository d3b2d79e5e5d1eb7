"""The release of unused Java objects."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tidelog_connect.server import java_references
from tidelog_connect.server.java_references import release_java_references


class Proxy:
    """A Java object as Py4J has it: the method that was called on it refers to it."""

    def __init__(self) -> None:
        self.method = self


@pytest.fixture
def _without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_collector")
def test_unused_proxies_are_freed_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(java_references, "_released_s", float("-inf"))
    monkeypatch.setattr(java_references.time, "monotonic", lambda: now_s)
    first, second = (weakref.ref(Proxy()) for _ in range(2))
    assert first() is not None
    release_java_references()
    assert first() is None
    assert second() is None
    third = weakref.ref(Proxy())
    now_s += 0.9
    release_java_references()
    assert third() is not None
    now_s += 0.2
    release_java_references()
    assert third() is None
