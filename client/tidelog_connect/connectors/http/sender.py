"""`Sender`: requests of records in their order, with attempts that are repeated. Runs on the executors of Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

from tidelog_connect.connectors.http.settings import headers_of, is_retried
from tidelog_foundation.errors import ErrorCode, error_for

logger = logging.getLogger(__name__)

_MAX_BACKOFF_MS = 60_000
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class HttpRecord:
    """A record: its topic, its place for errors, its key as text, and its body, None without a value."""

    topic: str
    place: str
    key: str | None
    body: str | None


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: str
    body: str | None
    first: str


class Sender:
    """Sends the records of one partition of a batch, one request after the other."""

    def __init__(self, settings: Mapping[str, Any], sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings, self._sleep = settings, sleep

    def send(self, records: Iterable[HttpRecord]) -> int:
        """Send all records, and return the number of requests that have failed and are tolerated.

        Raises:
            TidelogError: a request has failed, and behavior.on.error is fail.
        """
        settings = self._settings
        timeout = httpx2.Timeout(
            settings["http.request.timeout.ms"] / 1000, connect=settings["http.connect.timeout.ms"] / 1000
        )
        failed = 0
        with httpx2.Client(timeout=timeout, headers=self._headers(), auth=self._basic(), trust_env=False) as client:
            for request in self._requests(records):
                error = self._attempts(client, request)
                if error is None:
                    continue
                text = f"{request.method} {request.url} of {request.first} failed: {error}"
                if settings["behavior.on.error"] == "fail":
                    raise error_for(ErrorCode._STATE, text)
                if settings["behavior.on.error"] == "log":
                    logger.error("%s", text)
                failed += 1
        return failed

    def _requests(self, records: Iterable[HttpRecord]) -> Iterator[_Request]:
        """Yield the requests: those of a URL that follow each other share one, up to the limit."""
        settings, size = self._settings, self._settings["batch.max.size"]
        pending: list[str] = []
        method, url, first = settings["request.method"].upper(), "", ""
        for record in records:
            target = self._url(record)
            if pending and (target != url or len(pending) == size or record.body is None):
                yield _Request(method, url, self._body(pending), first)
                pending = []
            if record.body is not None:
                url, first = target, first if pending else record.place
                pending.append(record.body)
            elif settings["behavior.on.null.values"] == "delete":
                yield _Request("DELETE", target, None, record.place)
            elif settings["behavior.on.null.values"] == "fail":
                raise error_for(
                    ErrorCode._STATE, f"the record {record.place} has no value, and behavior.on.null.values=fail"
                )
        if pending:
            yield _Request(method, url, self._body(pending), first)

    def _url(self, record: HttpRecord) -> str:
        url: str = self._settings["http.api.url"]
        return url.replace("${topic}", quote(record.topic, safe="")).replace("${key}", quote(record.key or "", safe=""))

    def _body(self, bodies: list[str]) -> str:
        settings = self._settings
        if settings["batch.max.size"] == 1:
            return bodies[0]
        inner: str = settings["batch.separator"].join(bodies)
        return f"{settings['batch.prefix']}{inner}{settings['batch.suffix']}"

    def _attempts(self, client: httpx2.Client, request: _Request) -> str | None:
        """Send a request until it succeeds. Return the last error, or None."""
        settings, error = self._settings, ""
        for attempt in range(settings["max.retries"] + 1):
            if attempt:
                self._sleep(min(_MAX_BACKOFF_MS, settings["retry.backoff.ms"] << min(attempt - 1, 20)) / 1000)
            try:
                content = None if request.body is None else request.body.encode()
                answer = client.request(request.method, request.url, content=content)
            except httpx2.TransportError as problem:
                error = f"{type(problem).__name__}: {problem}"
                continue
            if answer.is_success:
                return None
            error = f"HTTP {answer.status_code} {answer.text[:_SHOWN]}"
            if not is_retried(answer.status_code, settings["retry.on.status.codes"]):
                return error
        return f"{error} ({settings['max.retries'] + 1} attempts)"

    def _headers(self) -> list[tuple[str, str]]:
        found = headers_of(self._settings)
        if self._settings["auth.type"].upper() == "BEARER":
            found.append(("Authorization", f"Bearer {self._settings['bearer.token'].secret}"))
        if not any(name.lower() == "content-type" for name, _ in found):
            found.append(("Content-Type", "application/json"))
        return found

    def _basic(self) -> httpx2.BasicAuth | None:
        if self._settings["auth.type"].upper() != "BASIC":
            return None
        return httpx2.BasicAuth(self._settings["connection.user"], self._settings["connection.password"].secret)
