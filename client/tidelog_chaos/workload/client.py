"""The base of every client of a run: a thread that works, crashes on request, and continues as another client."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from tidelog_chaos.history import HistoryWriter
from tidelog_chaos.metrics import Meter
from tidelog_chaos.workload.keys import Keys
from tidelog_foundation.errors import KafkaError


class Client(ABC):
    """Works in its thread until :meth:`stop`; :meth:`_live` is one life of it, which a crash ends."""

    def __init__(
        self, name: str, keys: Keys, history: HistoryWriter, meter: Meter, new_process: Callable[[], int]
    ) -> None:
        self._keys = keys
        self._history = history
        self._meter = meter
        self._new_process = new_process
        self._stopping = threading.Event()
        self._crashing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.error: BaseException | None = None
        self.errors: dict[str, int] = {}
        """The number of reports of each error."""

    def start(self) -> None:
        """Start to work."""
        self._thread.start()

    def crash(self) -> None:
        """Discard the client with all its unreported operations, and continue with a new one."""
        self._crashing.set()

    def give_up(self) -> None:
        """Stop without waiting."""
        self._stopping.set()
        self._crashing.set()

    def stop(self) -> None:
        """Stop, wait for pending operations, and crash; raises the error of the thread."""
        self._stopping.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    @property
    def _goes_on(self) -> bool:
        return not (self._stopping.is_set() or self._crashing.is_set())

    @abstractmethod
    def _live(self) -> None:
        """Work as one client until :attr:`_goes_on` is false."""

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._crashing.clear()
                self._live()
        except Exception as error:  # noqa: BLE001  # the outermost loop of the thread: stop() raises it
            self.error = error

    def _count(self, error: KafkaError) -> None:
        self.errors[error.name()] = self.errors.get(error.name(), 0) + 1
