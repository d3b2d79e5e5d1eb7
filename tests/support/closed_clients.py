"""Closes the clients of confluent-kafka that a test leaves open, also when it fails.

A client that stays open is ended by the collector of cycles in the middle of another test, on any thread: its callbacks
and the traceback of a failed test keep it in a cycle. Worker processes have crashed in such a collection.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final
from weakref import WeakSet

import confluent_kafka
import confluent_kafka.admin
import pytest

_LONGEST_CLOSE_S: Final = 20.0

_made: list[tuple[WeakSet[Any], Callable[[Any], object]]] = []


def _end_producer(producer: Any) -> None:
    # Closing waits for records without a limit.
    producer.purge()
    producer.close()


def _counted(kind: type[Any], end: Callable[[Any], object]) -> Callable[..., None]:
    """Return an ``__init__`` after which a client is known here as long as it exists."""
    made: WeakSet[Any] = WeakSet()
    init = kind.__init__

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        made.add(self)

    _made.append((made, end))
    return counted


def _counting(kind: type[Any], end: Callable[[Any], object]) -> type[Any]:
    """Return a class with such an ``__init__`` in place of one that is not written in Python."""
    members = {"__init__": _counted(kind, end), "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), members)


# For all modules of tests, which import the names later.
confluent_kafka.Producer = _counting(confluent_kafka.Producer, _end_producer)  # type: ignore[misc]
confluent_kafka.Consumer = _counting(confluent_kafka.Consumer, lambda consumer: consumer.close())  # type: ignore[misc]
confluent_kafka.admin.AdminClient.__init__ = _counted(  # type: ignore[method-assign]
    confluent_kafka.admin.AdminClient, lambda admin: admin.__exit__(None, None, None)
)


@contextlib.contextmanager
def closing_clients() -> Iterator[None]:
    """Close the clients that are made meanwhile and left open."""
    before = {id(client) for made, _ in _made for client in made}
    try:
        yield
    finally:
        left = [(end, client) for made, end in _made for client in made if id(client) not in before]
        if left:
            closing = threading.Thread(target=_close, args=[left], name="closing clients", daemon=True)
            closing.start()
            closing.join(_LONGEST_CLOSE_S)


@pytest.fixture(autouse=True)
def close_clients() -> Iterator[None]:
    """Close what a test and its own fixtures leave open; the clients of wider fixtures stay."""
    with closing_clients():
        yield


def _close(left: list[tuple[Callable[[Any], object], Any]]) -> None:
    for end, client in left:
        # It may be closed already. Closing a producer calls back with the records that it gives up, and raises a
        # SystemError when a callback of the test raises.
        with contextlib.suppress(RuntimeError, SystemError, confluent_kafka.KafkaException):
            end(client)
