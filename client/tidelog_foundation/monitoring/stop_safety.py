"""The path ``/safe-to-stop`` of the monitoring port: whether the process may stop, for supervisors.

``?wait=SECONDS`` answers as soon as the process may stop, or after that time at the latest, so that a preStop hook is
one request. ``?unreplicated=ignore`` leaves out what has no replica to spare in any case.
"""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.monitoring.answer import Answer, text_answer
from tidelog_foundation.monitoring.loop_access import LoopAccess, LoopBusyError
from tidelog_foundation.requests.stop_safety import DescribeStopSafetyResponse

DescribeStop: TypeAlias = Callable[[], Coroutine[Any, Any, DescribeStopSafetyResponse]]
"""Asks the leading controller about this process, on the event loop."""

_CALL_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.5
_MAX_WAIT_S: Final = 600
_SECONDS: Final = re.compile("[0-9]{1,3}")


class StopSafetyPath:
    """Answers requests in the threads of the port. One of them may wait at a time, so that threads are left."""

    def __init__(self, loop: LoopAccess, describe: DescribeStop) -> None:
        self._loop = loop
        self._describe = describe
        self._waiting = threading.Lock()

    def __call__(self, environ: Mapping[str, Any]) -> Answer:
        """Answer a request."""
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        wait, unreplicated = query.get("wait", ["0"])[0], query.get("unreplicated", [""])[0]
        if not (_SECONDS.fullmatch(wait) and int(wait) <= _MAX_WAIT_S):
            return text_answer("400 Bad Request", f"wait must be from 0 to {_MAX_WAIT_S} seconds, not {wait[:20]!r}")
        if unreplicated not in ("", "ignore"):
            return text_answer("400 Bad Request", f"unreplicated can only be ignore, not {unreplicated[:20]!r}")
        if not int(wait):
            return self._answer(0, unreplicated == "ignore")
        if not self._waiting.acquire(blocking=False):
            return text_answer("429 Too Many Requests", "another request waits until the process may stop")
        try:
            return self._answer(int(wait), unreplicated == "ignore")
        finally:
            self._waiting.release()

    def _answer(self, wait_s: int, ignores_unreplicated: bool) -> Answer:
        """Ask until the process may stop, no wait helps, or the time is over. An unknown answer is not a yes."""
        deadline = time.monotonic() + wait_s
        while True:
            answer, is_final = self._ask(ignores_unreplicated)
            if is_final or time.monotonic() + _POLL_S > deadline:
                return answer
            time.sleep(_POLL_S)

    def _ask(self, ignores_unreplicated: bool) -> tuple[Answer, bool]:
        try:
            found = self._loop.run(self._describe(), _CALL_TIMEOUT_S)
        except (TidelogError, LoopBusyError) as error:
            return text_answer("503 Service Unavailable", f"the controllers cannot tell: {error}"), False
        is_safe = found.is_safe(ignores_unreplicated=ignores_unreplicated)
        document = {"safe_to_stop": is_safe, **dataclasses.asdict(found)}
        status = "200 OK" if is_safe else "503 Service Unavailable"
        answer = Answer(status, json.dumps(document, indent=2).encode() + b"\n", "application/json")
        return answer, is_safe or not found.waiting_helps
