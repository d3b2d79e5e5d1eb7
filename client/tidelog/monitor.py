"""A lock with a condition on it, for state that an application's thread shares with the network thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Monitor:
    """Enter ``lock`` to read or change the state; use ``changed`` only inside, to wait and to notify.

    ``with monitor.lock`` and not ``with monitor.changed``: entering a Condition runs Python code, and Ctrl-C between
    its taking the lock and the body of the ``with`` would leave the lock taken for ever. The lock itself is entered in
    one uninterruptible step.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = _Announced(self.lock)

    def announce_to(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` with every notification as well, under the lock, on whatever thread: it must not wait.

        So somebody hears of changes who cannot block a thread in ``changed.wait()``.
        """
        self.changed.listener = listener


class _Announced(threading.Condition):
    listener: Callable[[], None] | None = None

    def notify_all(self) -> None:
        super().notify_all()
        if self.listener is not None:
            self.listener()
