"""The current keys of an issuer, fetched from its endpoint or file in a thread."""

from __future__ import annotations

import logging
import ssl
import threading
import time

from tidelog_foundation.oauth.http import ExchangeFailed, fetch_document
from tidelog_foundation.oauth.jwks import (
    MAX_DOCUMENT_BYTES,
    InvalidKeySet,
    KeySet,
    VerificationKey,
    parse_key_set,
)
from tidelog_foundation.oauth.jwks_schedule import JwksSchedule

logger = logging.getLogger(__name__)


class JwksStore:
    """Fetches a key set periodically in a daemon thread, and keeps the last valid one.

    ``find`` does not block. A token whose key is unknown is refused, and the set is fetched again soon, within the
    limits of the schedule. The thread runs from :meth:`start` to :meth:`stop`.
    """

    def __init__(self, url: str, schedule: JwksSchedule, tls: ssl.SSLContext | None = None) -> None:
        self._url = url
        self._schedule = schedule
        self._tls = tls
        self._keys = KeySet()
        self._condition = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"jwks {url}", daemon=True)

    def start(self) -> None:
        """Start to fetch. The keys are known a little later."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to fetch. A fetch in progress ends by itself."""
        with self._condition:
            self._stopping = True
            self._condition.notify()

    def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """Return the issuer's key for a key id and an algorithm, or None without such a key."""
        key = self._keys.find(key_id, algorithm)
        if key is None:
            self._expedite()
        return key

    def _expedite(self) -> None:
        with self._condition:
            if self._schedule.expedite(_now_ms()):
                self._condition.notify()

    def _run(self) -> None:
        while self._wait():
            try:
                self._keys = parse_key_set(fetch_document(self._url, MAX_DOCUMENT_BYTES, self._tls))
            except (ExchangeFailed, InvalidKeySet) as error:
                logger.error("Cannot fetch the keys of tokens from %s, the known ones stay: %s", self._url, error)
                with self._condition:
                    self._schedule.failed(_now_ms())
                continue
            with self._condition:
                self._schedule.succeeded(_now_ms())
            logger.debug("Fetched %d keys of tokens from %s", len(self._keys.keys), self._url)

    def _wait(self) -> bool:
        """Wait until a fetch is due; return False once the store is stopped."""
        with self._condition:
            while not self._stopping:
                left_ms = self._schedule.next_attempt_ms - _now_ms()
                if left_ms <= 0:
                    return True
                self._condition.wait(left_ms / 1_000)
            return False


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
