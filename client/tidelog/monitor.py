"""A lock and its condition, for state shared by an application thread and the network thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, cast


class Monitor:
    """Enter ``lock`` to read or change the state; inside it, use ``changed`` to wait and notify.

    Ctrl-C may interrupt an application thread at any point, and leaves the lock as it should be there.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = Changed(self.lock)

    def announce_to(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` with every notification, under the lock and on any thread; it must not wait.

        It informs callers that cannot block a thread in ``changed.wait()``.
        """
        self.changed.listener = listener


class Changed:
    """A condition, as ``threading.Condition``, for threads that Ctrl-C may interrupt.

    Python raises KeyboardInterrupt after a call, before the caller stores the result. ``threading.Condition.wait()``
    may then lose the state of the lock that it has just released, and does not take the lock again. Here, one call
    releases the lock and stores its state.
    """

    def __init__(self, lock: threading.RLock) -> None:
        # The methods of locks that threading.Condition uses, too.
        conditional = cast(Any, lock)
        self._is_owned: Callable[[], bool] = conditional._is_owned
        self._release: Callable[[], object] = conditional._release_save
        self._take: Callable[[object], None] = conditional._acquire_restore
        self._waiters: deque[threading.Lock] = deque()
        self.listener: Callable[[], None] | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock until a notification or the timeout in seconds. Return whether there was a notification."""
        if not self._is_owned():
            raise RuntimeError("cannot wait without the lock")
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        released: deque[object] = deque()
        is_notified = False
        try:
            released.extend(islice(iter(self._release, None), 1))
            is_notified = waiter.acquire(timeout=-1 if timeout is None else max(0, timeout))
        finally:
            # The first call here takes the lock.
            if released:
                self._take(released[0])
            if not is_notified:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
        return is_notified

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until a condition is true or the timeout in seconds, and return the condition's value."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (is_true := condition()):
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return is_true

    def notify_all(self) -> None:
        """End the wait of all threads. The caller has the lock."""
        while self._waiters:
            # Ctrl-C after either call leaves the waiter for the next notification, which releases it again.
            with contextlib.suppress(RuntimeError):
                self._waiters[0].release()
            self._waiters.popleft()
        if self.listener is not None:
            self.listener()
