"""What is done already and may be awaited nevertheless."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class Done(Coroutine[Any, Any, T]):
    """The result of a method that takes effect when it is called; ``await`` gives it at once, however often.

    It is a coroutine, of which a task may be made, but one that need not be awaited.
    """

    __slots__ = ("_result",)

    def __init__(self, result: T) -> None:
        self._result = result

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()
        return self._result

    def send(self, value: object) -> NoReturn:
        """End, with the result."""
        raise StopIteration(self._result)

    def throw(self, *error: Any) -> NoReturn:
        """End, with the error: a task is cancelled before it has begun."""
        raise error[0]

    def close(self) -> None:
        """Do nothing: there is nothing to end."""


DONE = Done(None)
"""Where there is nothing to return."""
