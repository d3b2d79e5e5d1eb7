"""The ASGI applications of the REST API: routes, bounds, access, errors, and forwarding to the leader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TypeAlias
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog_connect.herder.errors import RequestError
from tidelog_connect.rest import calls
from tidelog_connect.rest.basic_authentication import Users
from tidelog_connect.rest.calls import Answer, Call
from tidelog_connect.rest.internal_requests import SIGNATURE, is_signed
from tidelog_connect.rest.loggers import Loggers
from tidelog_connect.rest.response_headers import HeaderRule, ResponseHeaders
from tidelog_connect.rest.service import Service
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.unexpected import report_unexpected

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Call], Answer]
Forward: TypeAlias = Callable[[str, Request, bytes], Awaitable[Response]]
"""Sends a request with its body to the URL of the leader, and returns the leader's response."""

FORWARDED = "X-Tidelog-Forwarded"
"""Marks a forwarded request, which is not forwarded again: two workers may disagree for a moment on who leads."""

_C = "/connectors/{name}"
_P = "/connector-plugins/{plugin}"
_READS: dict[tuple[str, str], Handler] = {
    ("GET", "/"): calls.root,
    ("GET", "/health"): calls.health,
    ("GET", "/connectors"): calls.list_connectors,
    ("GET", _C): calls.get_connector,
    ("GET", f"{_C}/config"): calls.get_config,
    ("GET", f"{_C}/status"): calls.get_status,
    ("GET", f"{_C}/tasks"): calls.list_tasks,
    ("GET", f"{_C}/tasks/{{task}}/status"): calls.get_task_status,
    ("GET", f"{_C}/topics"): calls.get_topics,
    ("GET", f"{_C}/offsets"): calls.get_offsets,
    ("GET", "/connector-plugins"): calls.list_plugins,
    ("GET", f"{_P}/config"): calls.get_plugin_config,
    ("PUT", f"{_P}/config/validate"): calls.validate_config,
    ("GET", "/admin/loggers"): calls.list_loggers,
    ("GET", "/admin/loggers/{logger}"): calls.get_logger,
}
_CHANGES: dict[tuple[str, str], Handler] = {
    ("POST", "/connectors"): calls.create_connector,
    ("DELETE", _C): calls.delete_connector,
    ("PUT", f"{_C}/config"): calls.put_config,
    ("PATCH", f"{_C}/config"): calls.patch_config,
    ("POST", f"{_C}/restart"): calls.restart,
    ("POST", f"{_C}/tasks/{{task}}/restart"): calls.restart_task,
    ("PUT", f"{_C}/pause"): calls.pause,
    ("PUT", f"{_C}/resume"): calls.resume,
    ("PUT", f"{_C}/stop"): calls.stop,
    ("PUT", f"{_C}/topics/reset"): calls.reset_topics,
    ("PATCH", f"{_C}/offsets"): calls.alter_offsets,
    ("DELETE", f"{_C}/offsets"): calls.reset_offsets,
    ("PUT", "/admin/loggers/{logger}"): calls.set_logger,
}
_ADMIN = "/admin/"
_BODY_S = 30.0
_CROSS_ORIGIN_HEADERS = ("Accept", "Authorization", "Content-Type", "Origin", "X-Requested-With")


class Part(Enum):
    """The part of the API that an application serves."""

    ALL = auto()
    WITHOUT_ADMIN = auto()
    """``/admin`` serves other workers alone: there are admin.listeners."""
    ADMIN = auto()


@dataclass(frozen=True, slots=True)
class Access:
    """The users of the API, None for everybody; the origins and methods of browsers; and headers of responses."""

    users: Users | None = None
    origins: Sequence[str] = ()
    methods: Sequence[str] = ()
    header_rules: Sequence[HeaderRule] = ()


OPEN = Access()
"""Access for everybody, but not for browsers' pages of other origins."""


def application(
    service: Service,
    loggers: Loggers,
    max_body_bytes: int,
    forward: Forward,
    access: Access = OPEN,
    part: Part = Part.ALL,
) -> ASGIApp:
    """Return the application. Changes on a worker that does not lead are forwarded."""

    async def respond(handler: Handler, is_change: bool, request: Request) -> Response:
        is_user = access.users is None or access.users.accept(request.headers.get("Authorization"))
        if not is_user and SIGNATURE not in request.headers:
            return _unauthorized()
        body = await _body(request, max_body_bytes)
        is_internal = is_signed(service.session_key(), request.headers, request.method, request_target(request), body)
        if not is_user and not is_internal:
            raise RequestError(403, "The request is not signed with the session key of the present leader; try again")
        if part is Part.WITHOUT_ADMIN and request.url.path.startswith(_ADMIN) and not is_internal:
            raise HTTPException(404, "Not Found")
        if is_change and not _is_of_this_worker(request):
            url = await run_in_threadpool(service.leader_url)
            if url is not None:
                if FORWARDED in request.headers:
                    raise RequestError(409, "Cannot complete request because this worker does not lead; try again")
                return await forward(url, request, body)
        query = {key: request.query_params.getlist(key) for key in request.query_params}
        path = {key: unquote(str(value)) for key, value in request.path_params.items()}
        answer = await run_in_threadpool(handler, Call(service, loggers, path, query, body))
        return _response(answer)

    routes: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {}
    for table, is_change in ((_READS, False), (_CHANGES, True)):
        for (method, path), handler in table.items():
            if part is Part.ADMIN and not path.startswith(_ADMIN):
                continue
            routes.setdefault(path, {})[method] = partial(respond, handler, is_change)
    cross_origin = Middleware(
        CORSMiddleware,
        allow_origins=access.origins,
        allow_methods=access.methods,
        allow_headers=_CROSS_ORIGIN_HEADERS,
    )
    served = Starlette(
        middleware=[cross_origin] if access.origins else [],
        routes=[Route(path, _by_method(methods), methods=list(methods)) for path, methods in routes.items()],
        exception_handlers={
            RequestError: _refused,
            HTTPException: _not_served,
            TidelogError: _failed,
            Exception: _unexpected,
        },
    )
    return ResponseHeaders(served, access.header_rules) if access.header_rules else served


class CountedRequests:
    """An ASGI application that counts the requests to another one, by method and status."""

    def __init__(self, app: ASGIApp, count: Callable[[str, int], None]) -> None:
        self._app, self._count = app, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope["method"], message["status"])
            await send(message)

        await self._app(scope, receive, send_counted)


def request_target(request: Request) -> str:
    """Return path and query as they were sent."""
    query = request.scope["query_string"].decode("latin-1")
    path = request.scope.get("raw_path") or request.url.path.encode()
    return path.decode("latin-1") + (f"?{query}" if query else "")


def _unauthorized() -> Response:
    response = _error(401, "User cannot access the resource.")
    response.headers["WWW-Authenticate"] = 'Basic realm="connect"'
    return response


def _by_method(
    methods: dict[str, Callable[[Request], Awaitable[Response]]],
) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        return await methods["GET" if request.method == "HEAD" else request.method](request)

    return respond


def _is_of_this_worker(request: Request) -> bool:
    """Tell whether a change is one of this worker alone: the level of its own loggers."""
    return request.url.path.startswith("/admin/") and request.query_params.get("scope", "worker") == "worker"


async def _body(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise RequestError(413, f"The body has more than {limit} bytes (rest.max.request.bytes)")
                parts.append(part)
    except TimeoutError as error:
        raise RequestError(408, f"The body has not arrived within {_BODY_S:.0f} s") from error
    return b"".join(parts)


def _response(answer: Answer) -> Response:
    if answer.body is None:
        return Response(status_code=answer.status, headers=dict(answer.headers))
    return JSONResponse(answer.body, answer.status, headers=dict(answer.headers))


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error_code": status, "message": message}, status)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _error(error.status, error.message)


async def _not_served(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"HTTP {error.status_code} {error.detail}")


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, TidelogError)
    return _error(503 if error.code.retriable else 500, error.message)


async def _unexpected(request: Request, error: Exception) -> Response:
    hidden = report_unexpected(logger, error, "%s %s has failed", request.method, request.url.path)
    return _error(500, hidden.message)
