"""Runs a blocking call in its own daemon thread, which never keeps the process from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def call_in_thread(name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call ``function`` in a new thread and return or raise its result; a cancellation does not stop the thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def finish(result: R | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            outcome: tuple[R | None, BaseException | None] = function(*args, **kwargs), None
        except BaseException as error:  # noqa: BLE001  # raised where it is awaited
            outcome = None, error
        try:
            loop.call_soon_threadsafe(finish, *outcome)
        except RuntimeError:
            # The loop has closed: nobody waits any more.
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future
