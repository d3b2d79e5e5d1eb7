"""A lock and its condition, for state shared by an application thread and the network thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Monitor:
    """Enter ``lock`` to read or change the state; inside it, use ``changed`` to wait and notify.

    Use ``with monitor.lock`` and never ``with monitor.changed``: entering a Condition runs Python code, and Ctrl-C
    after it takes the lock but before the body of the ``with`` would leave the lock taken forever. Entering the lock
    itself cannot be interrupted.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = _Announced(self.lock)

    def announce_to(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` with every notification, under the lock and on any thread; it must not wait.

        It informs callers that cannot block a thread in ``changed.wait()``.
        """
        self.changed.listener = listener


class _Announced(threading.Condition):
    listener: Callable[[], None] | None = None

    def notify_all(self) -> None:
        super().notify_all()
        if self.listener is not None:
            self.listener()
