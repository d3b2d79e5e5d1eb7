"""The paths of the monitoring port, as a WSGI application that several threads call."""

from __future__ import annotations

import gzip
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from tidelog_foundation.metrics import Family
from tidelog_foundation.monitoring.answer import Answer, text_answer
from tidelog_foundation.monitoring.checks import Check, Readiness
from tidelog_foundation.monitoring.exposition import Exposition, Format
from tidelog_foundation.monitoring.loop_access import LoopAccess, LoopBusyError
from tidelog_foundation.monitoring.sources import Sources
from tidelog_foundation.monitoring.stop_safety import DescribeStop, StopSafetyPath

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

logger = logging.getLogger(__name__)
_ANSWER_TIMEOUT_S: Final = 5.0
"""The time in which the event loop must answer a health check."""
_MAX_AGE_S: Final = 1.0
"""The age up to which collected metrics are used for a further scrape."""
_MAX_SCRAPES: Final = 2
"""The number of scrapes at a time, so that threads are left for health checks."""
_MAX_PROFILE_S: Final = 60
_SECONDS: Final = re.compile("[0-9]{1,2}")


class MonitoringApplication:
    """Answers the requests of monitoring systems and supervisors.

    Metrics are collected and rendered by one thread at a time. Scrapes that arrive meanwhile wait and use the same
    result, so that many of them cost little more than one.
    """

    def __init__(
        self, loop: LoopAccess, sources: Sources, readiness: Readiness, describe_stop: DescribeStop, *, has_debug: bool
    ) -> None:
        self._loop = loop
        self._sources = sources
        self._readiness = readiness
        self._exposition = Exposition()
        self._scrape = threading.Lock()
        self._scrapes = threading.BoundedSemaphore(_MAX_SCRAPES)
        self._profile = threading.Lock()
        self._collected: tuple[float, list[Family]] = -_MAX_AGE_S, []
        """The time of the latest collection, and its families."""
        self._rendered: dict[Format, Answer] = {}
        """The answers with these families."""
        self._paths: dict[str, Callable[[WSGIEnvironment], Answer]] = {
            "/metrics": self._metrics,
            "/livez": self._live,
            "/readyz": self._ready,
            "/healthz": self._health,
            "/safe-to-stop": StopSafetyPath(loop, describe_stop),
        }
        if has_debug:
            self._paths |= {"/debug/tasks": self._tasks, "/debug/profile": self._profiled}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        answer = self._answer(environ)
        content, headers = answer.content, [("Content-Type", answer.content_type), ("Cache-Control", "no-store")]
        if "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""):
            content = gzip.compress(content, compresslevel=1)
            headers.append(("Content-Encoding", "gzip"))
        start_response(answer.status, [*headers, ("Content-Length", str(len(content)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else content]

    def _answer(self, environ: WSGIEnvironment) -> Answer:
        path = environ.get("PATH_INFO", "")
        respond = self._paths.get(path)
        if respond is None:
            return text_answer("404 Not Found", f"no such path; the paths are {', '.join(self._paths)}")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return text_answer("405 Method Not Allowed", "only GET and HEAD are allowed")
        try:
            return respond(environ)
        except LoopBusyError as error:
            return text_answer("503 Service Unavailable", str(error))
        except Exception:
            logger.exception("A request for %s failed with an unexpected error", path)
            return text_answer("500 Internal Server Error", "the request failed; see the log of the process")

    def _metrics(self, environ: WSGIEnvironment) -> Answer:
        if not self._scrapes.acquire(blocking=False):
            return text_answer("503 Service Unavailable", f"{_MAX_SCRAPES} scrapes are in progress")
        try:
            with self._scrape:
                return self._rendered_in(Format.accepted(environ.get("HTTP_ACCEPT", "")))
        finally:
            self._scrapes.release()

    def _rendered_in(self, format_: Format) -> Answer:
        families = self._current_families()
        if format_ not in self._rendered:
            text = self._exposition.render(families, format_)
            self._rendered[format_] = Answer("200 OK", text, format_.value)
        return self._rendered[format_]

    def _current_families(self) -> list[Family]:
        collected_s, families = self._collected
        if time.monotonic() - collected_s >= _MAX_AGE_S:
            families = self._sources.collect(self._loop)
            self._rendered.clear()
            self._collected = time.monotonic(), families
        return families

    def _live(self, _: WSGIEnvironment) -> Answer:
        self._loop.call(lambda: None, _ANSWER_TIMEOUT_S)
        return text_answer("200 OK", "ok")

    def _ready(self, _: WSGIEnvironment) -> Answer:
        failed = [check for check in self._checks() if not check.is_ok]
        if failed:
            return text_answer(
                "503 Service Unavailable", "\n".join(f"{check.name}: {check.detail}" for check in failed)
            )
        return text_answer("200 OK", "ok")

    def _health(self, _: WSGIEnvironment) -> Answer:
        checks = self._checks()
        is_ready = all(check.is_ok for check in checks)
        report: Mapping[str, object] = {
            "ready": is_ready,
            "checks": [{"name": each.name, "ok": each.is_ok, "detail": each.detail} for each in checks],
        }
        status = "200 OK" if is_ready else "503 Service Unavailable"
        return Answer(status, json.dumps(report, indent=2).encode() + b"\n", "application/json")

    def _checks(self) -> Sequence[Check]:
        return self._loop.call(self._readiness, _ANSWER_TIMEOUT_S)

    def _tasks(self, _: WSGIEnvironment) -> Answer:
        return Answer("200 OK", self._loop.tasks().encode())

    def _profiled(self, environ: WSGIEnvironment) -> Answer:
        given = parse_qs(environ.get("QUERY_STRING", "")).get("seconds", ["10"])[0]
        if not (_SECONDS.fullmatch(given) and 1 <= int(given) <= _MAX_PROFILE_S):
            return text_answer("400 Bad Request", f"seconds must be from 1 to {_MAX_PROFILE_S}, not {given[:20]!r}")
        if not self._profile.acquire(blocking=False):
            return text_answer("429 Too Many Requests", "another profile is being taken")
        try:
            return Answer("200 OK", self._loop.profile(int(given)).encode())
        finally:
            self._profile.release()
