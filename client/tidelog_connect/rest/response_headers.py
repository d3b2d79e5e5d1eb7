"""Headers that ``response.http.headers.config`` adds to all responses (KIP-577), as Jetty's HeaderFilter does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ACTIONS = {"set": (False, False), "add": (True, False), "setdate": (False, True), "adddate": (True, True)}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """A header. ``is_added`` keeps values that the response has; the value of a date is in ms from now."""

    name: str
    value: str
    is_added: bool
    is_date: bool

    def value_at(self, now_s: float) -> str:
        """Return the header's value."""
        return formatdate(now_s + int(self.value) / 1000, usegmt=True) if self.is_date else self.value


def parse_header_rules(texts: Sequence[str]) -> tuple[HeaderRule, ...]:
    """Return the rules of texts such as ``set Cache-Control: no-cache``.

    Raises:
        ValueError: A text has another form.
    """
    return tuple(_rule(text) for text in texts if text.strip())


def _rule(text: str) -> HeaderRule:
    action, _, header = text.strip().partition(" ")
    name, colon, value = header.partition(":")
    name, value = name.strip(), value.strip()
    if action.lower() not in _ACTIONS:
        raise ValueError(f"Invalid header config action: '{action}'. Expected one of set, add, setDate, addDate")
    if not colon or _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
        raise ValueError(f"Invalid header '{header}'. Expected: '[header name]:[header value]'")
    is_added, is_date = _ACTIONS[action.lower()]
    if is_date and re.fullmatch(r"-?[0-9]{1,15}", value) is None:
        raise ValueError(f"Invalid date '{value}' of header {name}: milliseconds from now are expected")
    return HeaderRule(name, value, is_added, is_date)


class ResponseHeaders:
    """An ASGI application that adds headers to the responses of another one."""

    def __init__(self, app: ASGIApp, rules: Sequence[HeaderRule], now_s: Callable[[], float] = time.time) -> None:
        self._app, self._rules, self._now_s = app, rules, now_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for rule in self._rules:
                    value = rule.value_at(self._now_s())
                    if rule.is_added:
                        headers.append(rule.name, value)
                    else:
                        headers[rule.name] = value
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
