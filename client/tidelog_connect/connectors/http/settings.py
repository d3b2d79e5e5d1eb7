"""The settings of HttpSink, named as those of Confluent's HTTP Sink connector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigException,
    Importance,
    Range,
    Type,
    ValidString,
)

_CODES = re.compile(r"[1-5]\d\d(-([1-5]\d\d)?)?")


def http_settings() -> ConfigDef:
    """Return the settings of HttpSink."""
    found, high, medium, low = ConfigDef(), Importance.HIGH, Importance.MEDIUM, Importance.LOW
    secret, text, number = Type.PASSWORD, Type.STRING, Type.INT
    methods, policies = ("POST", "PUT", "PATCH"), ValidString(("fail", "log", "ignore"))
    nulls, authentication = (
        ValidString(("ignore", "delete", "fail")),
        CaseInsensitiveValidString(("NONE", "BASIC", "BEARER")),
    )
    url = "The URL of the API. ${topic} and ${key} are those of the records."
    for name, kind, default, importance, documentation, validator in (
        ("http.api.url", text, NO_DEFAULT_VALUE, high, url, _url),
        ("request.method", text, "POST", high, "The method.", CaseInsensitiveValidString(methods)),
        ("headers", text, "", high, "Headers as name:value, with header.separator between them.", None),
        ("header.separator", text, "|", medium, "The text between headers.", None),
        ("batch.max.size", number, "1", high, "The most records in a request.", Range(1, 100_000)),
        ("batch.prefix", text, "[", high, "The text before the records of a request, unless batch.max.size=1.", None),
        ("batch.suffix", text, "]", high, "The text behind them.", None),
        ("batch.separator", text, ",", high, "The text between them.", None),
        ("max.retries", number, "10", high, "The attempts after the first.", Range(0, 1_000_000)),
        ("retry.backoff.ms", number, "3000", high, "The wait before the second attempt; waits double.", Range(0)),
        ("retry.on.status.codes", Type.LIST, "400-", medium, "Codes to retry: single ones and ranges.", _codes),
        ("http.connect.timeout.ms", number, "30000", medium, "The most time for a connection.", Range(1)),
        ("http.request.timeout.ms", number, "30000", medium, "The most time for a part of a response.", Range(1)),
        ("behavior.on.error", text, "fail", high, "After the last attempt: fail, log, or ignore.", policies),
        ("behavior.on.null.values", text, "ignore", low, "A record without value: ignore, delete, or fail.", nulls),
        ("auth.type", text, "NONE", high, "NONE, BASIC, or BEARER.", authentication),
        ("connection.user", text, "", medium, "The user of BASIC.", None),
        ("connection.password", secret, "", medium, "The password of BASIC.", None),
        ("bearer.token", secret, "", medium, "The token of BEARER.", None),
    ):
        found.define(name, kind, default, importance, documentation, validator=validator)
    return found


def check(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the errors of settings that do not fit each other, by their names."""
    kind = settings["auth.type"].upper()
    if kind == "BASIC" and not settings["connection.user"]:
        return {"connection.user": "auth.type=BASIC requires connection.user"}
    if kind == "BEARER" and not settings["bearer.token"]:
        return {"bearer.token": "auth.type=BEARER requires bearer.token"}
    if settings["behavior.on.null.values"] == "delete" and "${key}" not in settings["http.api.url"]:
        return {"behavior.on.null.values": "delete requires ${key} in http.api.url"}
    try:
        headers_of(settings)
    except ValueError as error:
        return {"headers": str(error)}
    return {}


def headers_of(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers of requests.

    Raises:
        ValueError: one has no name.
    """
    found = []
    parts = settings["headers"].split(settings["header.separator"] or "|") if settings["headers"] else []
    for part in parts:
        name, colon, value = part.partition(":")
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip()):
            raise ValueError(f"Not a header, which is name:value: {part!r}")
        found.append((name.strip(), value.strip()))
    return found


def is_retried(code: int, codes: list[str]) -> bool:
    """Tell whether a status code is among codes such as 429 and ranges such as 500-599 or 500-."""
    for each in codes:
        low, dash, high = each.partition("-")
        if int(low) <= code <= (int(high or 999) if dash else int(low)):
            return True
    return False


def _url(name: str, value: object) -> None:
    parts = urlsplit(str(value))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigException.of(name, value, "Must be a URL with http or https")


def _codes(name: str, value: object) -> None:
    assert isinstance(value, list)
    for each in value:
        if not _CODES.fullmatch(each):
            raise ConfigException.of(name, value, f"{each} is no status code such as 429, and no range such as 500-599")
