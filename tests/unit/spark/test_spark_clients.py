"""A process has one client per cluster, and a forked child one of its own."""

from __future__ import annotations

import os

from tidelog_spark.clients import ProcessCache


def test_cache_keeps_a_value_per_key_until_it_is_removed() -> None:
    cache: ProcessCache[object] = ProcessCache()
    first = cache.get("a", object)
    assert cache.get("a", object) is first
    assert cache.get("b", object) is not first
    cache.remove("a", object())
    assert cache.get("a", object) is first
    cache.remove("a", first)
    assert cache.get("a", object) is not first


def test_forked_child_has_values_of_its_own() -> None:
    cache: ProcessCache[int] = ProcessCache()
    cache.get("client", os.getpid)
    child = os.fork()
    if child == 0:
        os._exit(0 if cache.get("client", os.getpid) == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
