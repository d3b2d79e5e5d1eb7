"""A client's tokens from a token endpoint (OAuth 2, client credentials, RFC 6749, section 4.4).

The endpoint's token is a JWT: its claim ``exp`` is the expiry. The client does not verify its signature.
"""

from __future__ import annotations

import base64
import json
import logging
import random
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.oauth.http import DEFAULT_TIMEOUTS, ExchangeFailed, Timeouts, post_form
from tidelog_foundation.oauth.settings import LoginSettings
from tidelog_foundation.oauth.token import MAX_TOKEN_CHARACTERS, TokenRefused, time_claim_ms
from tidelog_foundation.oauth.token_lifetime import RefreshWindow
from tidelog_foundation.oauth.unsecured import decode_part
from tidelog_foundation.sasl.oauthbearer import ClientToken

logger = logging.getLogger(__name__)
_MAX_ANSWER_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """An endpoint and the client's credentials for it. ``request`` blocks."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    tls: ssl.SSLContext | None = None

    def request(self) -> tuple[ClientToken, int]:
        """Return a new token, and its time of issue in milliseconds since 1970.

        Raises:
            ExchangeFailed: The endpoint cannot be reached, refuses the credentials, or answers with something else.
        """
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        pair = ":".join(map(urllib.parse.quote_plus, (self.client_id, self.client_secret)))
        headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        answer = post_form(self.url, form, headers, _MAX_ANSWER_BYTES, self.tls, self.timeouts)
        value = _access_token(answer)
        expires_at_ms, issued_at_ms = _times(value)
        return ClientToken(value, expires_at_ms, self.extensions), issued_at_ms


class TokenSource:
    """The current token of a client, which is replaced before it expires.

    ``token`` may be called in any thread. While one thread requests a token, the others wait for it.
    """

    def __init__(
        self,
        request: Callable[[], tuple[ClientToken, int]],
        window: RefreshWindow,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self._request = request
        self._window = window
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._lock = threading.Lock()
        self._current: ClientToken | None = None
        self._refresh_at_ms = 0

    def token(self) -> ClientToken:
        """Return a token that has not expired. Request one if there is none, or if the current one is due.

        Raises:
            TidelogError: SASL_AUTHENTICATION_FAILED, the endpoint provides no token.
        """
        with self._lock:
            now_ms = _now_ms()
            if self._current is not None and now_ms < self._refresh_at_ms:
                return self._current
            try:
                self._current, issued_at_ms = self._retried()
            except ExchangeFailed as error:
                if self._current is None or self._current.expires_at_ms <= _now_ms():
                    raise _failed(error) from error
                logger.warning("Cannot get a new token, the current one stays: %s", error)
                return self._current
            self._refresh_at_ms = self._window.refresh_at_ms(_now_ms(), issued_at_ms, self._current.expires_at_ms)
            return self._current

    def _retried(self) -> tuple[ClientToken, int]:
        """Request a token until the endpoint answers, refuses, or the longest backoff has passed in all."""
        deadline_ms, pause_ms = _now_ms() + self._retry_backoff_max_ms, self._retry_backoff_ms
        while True:
            try:
                return self._request()
            except ExchangeFailed as error:
                if not error.retriable or _now_ms() + pause_ms > deadline_ms:
                    raise
            time.sleep(pause_ms / 1_000)
            pause_ms *= 2


def token_source(endpoint: TokenEndpoint, settings: LoginSettings) -> TokenSource:
    """Return the tokens of an endpoint, which are replaced by the rules of ``sasl.login.*``."""
    jitter = settings.sasl_login_refresh_window_jitter
    window = RefreshWindow(
        settings.sasl_login_refresh_window_factor + random.uniform(0, jitter),
        settings.sasl_login_refresh_min_period_seconds * 1_000,
        settings.sasl_login_refresh_buffer_seconds * 1_000,
    )
    backoff_ms, max_ms = settings.sasl_login_retry_backoff_ms, settings.sasl_login_retry_backoff_max_ms
    return TokenSource(endpoint.request, window, backoff_ms, max_ms)


def _access_token(answer: bytes) -> str:
    try:
        content = json.loads(answer)
    except (ValueError, RecursionError):
        raise ExchangeFailed("the token endpoint's answer is not JSON", retriable=False) from None
    value = content.get("access_token") if isinstance(content, dict) else None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TOKEN_CHARACTERS:
        raise ExchangeFailed("the token endpoint's answer has no access_token", retriable=False)
    return value.strip()


def _times(token: str) -> tuple[int, int]:
    parts = token.split(".")
    try:
        claims = decode_part(parts[1]) if len(parts) == 3 else {}
        expires_at_ms = time_claim_ms(claims, "exp")
        issued_at_ms = time_claim_ms(claims, "iat")
    except TokenRefused as error:
        raise ExchangeFailed(f"the token endpoint's token is unusable: {error.reason}", retriable=False) from None
    if expires_at_ms is None:
        raise ExchangeFailed("the token endpoint's token is not a JWT with the claim exp", retriable=False)
    return expires_at_ms, issued_at_ms if issued_at_ms is not None else _now_ms()


def _failed(error: ExchangeFailed) -> TidelogError:
    return error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, f"cannot get a token from the token endpoint: {error}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
