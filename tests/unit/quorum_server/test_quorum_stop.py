"""The end of a controller's process that can no longer take part."""

from __future__ import annotations

import asyncio

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.server.process import _run_until


class Job:
    """A concurrent job that does not end by itself."""

    async def run(self) -> None:
        await asyncio.sleep(60)


class BrokenEngine:
    """Fails as an engine does whose disk fails."""

    async def wait_failed(self) -> None:
        await asyncio.sleep(0.01)
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, "cannot write to the metadata log in /data: no space")


class WorkingEngine:
    async def wait_failed(self) -> None:
        await asyncio.sleep(60)


def test_controller_ends_with_the_one_error_of_its_engine() -> None:
    with pytest.raises(TidelogError, match="no space") as raised:
        asyncio.run(_run_until(asyncio.Event(), Job(), BrokenEngine(), Job(), Job()))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_controller_ends_without_an_error_when_told_to() -> None:
    async def run() -> None:
        stop = asyncio.Event()
        stop.set()
        await asyncio.wait_for(_run_until(stop, Job(), WorkingEngine(), Job(), Job()), 1)

    asyncio.run(run())
