"""Calls into a client of librdkafka, each with a limit, because some never end whatever timeout they are given."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from tidelog_chaos.workload.confluent.own_thread import OwnThread
from tidelog_chaos.workload.confluent.values import translated
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError

logger = logging.getLogger(__name__)

T = TypeVar("T")

HANGS_S: Final = 60.0
"""A call without a timeout that takes longer never ends: all attempts of its requests together take less."""
GRACE_S: Final = 15.0
"""A call that lasts for so long beyond its own timeout never ends."""


class ClientCalls:
    """The calls of one client, one after another. After a call that does not end, the client is left behind."""

    def __init__(self) -> None:
        self._thread = OwnThread("librdkafka")
        self.is_left_behind = False

    def run(self, what: str, call: Callable[[], T], timeout_s: float | None = None) -> T:
        """Return the result of a call, which ends after ``timeout_s``, by default :data:`HANGS_S`, if it ever does.

        Raises:
            TidelogError: That of librdkafka; _TIMED_OUT, fatal, if this call or an earlier one does not end.
        """
        if self.is_left_behind:
            raise _timed_out(f"librdkafka was asked to {what} after a call that has not ended")
        limit_s = HANGS_S if timeout_s is None else timeout_s
        try:
            with translated():
                return self._thread.run(call, limit_s)
        except TimeoutError:
            self.is_left_behind = True
            raise _timed_out(f"librdkafka was asked to {what} and has not done it in {limit_s:g} s") from None

    def end(self, what: str, call: Callable[[], object]) -> None:
        """Make the last call; log a warning if it does not end."""
        try:
            if not self.is_left_behind:
                self.run(what, call)
        except TidelogError as error:
            if error.code is not ErrorCode._TIMED_OUT:
                raise
            logger.warning("A client is left behind: %s", error.message)
        finally:
            self._thread.end()


def _timed_out(text: str) -> TidelogError:
    return TidelogError(KafkaError(ErrorCode._TIMED_OUT, text, fatal=True))
