"""The time that the event loop spends on a coroutine, without the coroutine's waits."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Protocol, TypeVar, cast

T = TypeVar("T")


class Measured(Protocol):
    """The receiver of the beginnings and ends of a coroutine's steps."""

    def enter(self) -> None:
        """Begin a step."""

    def leave(self) -> None:
        """End a step."""


class MeasuredSteps(Coroutine[Any, Any, T]):
    """A coroutine whose steps count for a request. Waits between them do not."""

    __slots__ = ("_steps", "_usage")

    def __init__(self, steps: Coroutine[Any, Any, T], usage: Measured) -> None:
        self._steps = steps
        self._usage = usage

    def send(self, value: Any) -> Any:
        """Run the next step."""
        self._usage.enter()
        try:
            return self._steps.send(value)
        finally:
            self._usage.leave()

    def throw(self, *error: Any) -> Any:
        """Raise an error in the next step."""
        self._usage.enter()
        try:
            return self._steps.throw(*error)
        finally:
            self._usage.leave()

    def close(self) -> None:
        """End the coroutine."""
        self._steps.close()

    def __await__(self) -> Generator[Any, Any, T]:
        """Return the steps, for a coroutine that awaits them."""
        return cast(Generator[Any, Any, T], self)

    def __iter__(self) -> MeasuredSteps[T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)
