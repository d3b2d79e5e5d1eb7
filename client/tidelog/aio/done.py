"""An awaitable that is already complete."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class Done(Coroutine[Any, Any, T]):
    """The result of a method that takes effect when called; ``await`` returns it at once, any number of times.

    It is a coroutine, so a task can run it, but it need not be awaited.
    """

    __slots__ = ("_result",)

    def __init__(self, result: T) -> None:
        self._result = result

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()
        return self._result

    def send(self, value: object) -> NoReturn:
        """End with the result."""
        raise StopIteration(self._result)

    def throw(self, *error: Any) -> NoReturn:
        """End with the error, for a task that is cancelled before its start."""
        raise error[0]

    def close(self) -> None:
        """Do nothing, because nothing is running."""


DONE = Done(None)
"""The completed result of a method that returns nothing."""
