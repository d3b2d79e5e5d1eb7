"""The messages of AuthenticationService and the metadata of its sessions, for both sides.

This is the only module of the foundation that knows protobuf messages of Tidelog: servers and clients log in alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidelog.v1 import authentication_service_pb2 as pb
from tidelog_foundation.transport.message_codec import MessageCodec

SERVICE: Final = pb.DESCRIPTOR.services_by_name["AuthenticationService"]
AUTHENTICATE: Final = "Authenticate"
AUTHORIZATION: Final = "authorization"
"""The key of the metadata with a session's token."""
_SCHEME: Final = "Session "


@dataclass(frozen=True, slots=True)
class AuthenticateRequest:
    """A token of the client. ``mechanism`` and ``session_token``, the session to prolong, are in the first one."""

    mechanism: str = ""
    auth_bytes: bytes = field(default=b"", repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class AuthenticateResponse:
    """A token of the server. The last one has the session and its lifetime, 0 for no limit."""

    auth_bytes: bytes = field(default=b"", repr=False)
    session_token: str = field(default="", repr=False)
    session_lifetime_ms: int = 0


REQUESTS: Final = MessageCodec(AuthenticateRequest, pb.AuthenticateRequest)
RESPONSES: Final = MessageCodec(AuthenticateResponse, pb.AuthenticateResponse)


def authorization(token: str) -> tuple[str, str]:
    """Return the metadata of a call with a session."""
    return AUTHORIZATION, _SCHEME + token


def token_in(value: str) -> str | None:
    """Return the token in the metadata's value, or None if it has another scheme."""
    return value.removeprefix(_SCHEME) if value.startswith(_SCHEME) else None
