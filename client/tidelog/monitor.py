"""A lock with a condition on it, for state that an application's thread shares with the network thread."""

from __future__ import annotations

import threading


class Monitor:
    """Enter ``lock`` to read or change the state; use ``changed`` only inside, to wait and to notify.

    ``with monitor.lock`` and not ``with monitor.changed``: entering a Condition runs Python code, and Ctrl-C between
    its taking the lock and the body of the ``with`` would leave the lock taken for ever. The lock itself is entered in
    one uninterruptible step.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
