"""Few collections of garbage while a server starts."""

from __future__ import annotations

import asyncio
import gc

import pytest

from tidelog_foundation import lasting_objects


def test_start_collects_seldom_and_its_end_excludes_what_has_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting_objects, "_START_S", 0.01)
    before, frozen = gc.get_threshold(), gc.get_freeze_count()

    async def start() -> list[object]:
        with lasting_objects.few_collections_at_the_start():
            assert gc.get_threshold() > before
            lasting: list[object] = [[number] for number in range(1_000)]
            async with asyncio.timeout(10):
                while gc.get_threshold() != before:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            return lasting

    assert len(asyncio.run(start())) == 1_000
    assert gc.get_freeze_count() >= frozen + 1_000


def test_process_that_ends_while_it_starts_collects_as_before() -> None:
    before = gc.get_threshold()

    async def start() -> None:
        with lasting_objects.few_collections_at_the_start():
            assert gc.get_threshold() > before

    asyncio.run(start())
    assert gc.get_threshold() == before
