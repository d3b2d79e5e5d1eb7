"""The messages of AuthenticationService and the metadata of its sessions, for both sides.

This is the only module of the foundation that knows protobuf messages of Tidelog: servers and clients log in alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Final

from tidelog.v1 import authentication_service_pb2 as pb
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.transport.message_codec import MessageCodec

SERVICE: Final = pb.DESCRIPTOR.services_by_name["AuthenticationService"]
AUTHENTICATE: Final = "Authenticate"
REQUEST_KEY: Final = "tidelog-authenticate-bin"
"""The key of the metadata with an AuthenticateRequest."""
PART_BYTES: Final = 4 * 1024
"""The largest part of a token in one request. gRPC accepts 8 KiB of metadata, in which bytes are in base64."""
AUTHORIZATION: Final = "authorization"
"""The key of the metadata with a session's token."""
_SCHEME: Final = "Session "


@dataclass(frozen=True, slots=True)
class AuthenticateRequest:
    """A token of the client, or a part of it if ``has_more``.

    ``mechanism`` and ``session_token``, the session to prolong, are in the first one, ``exchange_id`` in all others.
    """

    mechanism: str = ""
    auth_bytes: bytes = field(default=b"", repr=False)
    session_token: str = field(default="", repr=False)
    exchange_id: bytes = field(default=b"", repr=False)
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class AuthenticateResponse:
    """A token of the server. The last one has the session and its lifetime, 0 for no limit; others the exchange."""

    auth_bytes: bytes = field(default=b"", repr=False)
    session_token: str = field(default="", repr=False)
    session_lifetime_ms: int = 0
    exchange_id: bytes = field(default=b"", repr=False)


REQUESTS: Final = MessageCodec(AuthenticateRequest, pb.AuthenticateRequest)
RESPONSES: Final = MessageCodec(AuthenticateResponse, pb.AuthenticateResponse)


def metadata_of(request: AuthenticateRequest) -> tuple[str, bytes]:
    """Return the metadata with a request."""
    return REQUEST_KEY, REQUESTS.to_message(request).SerializeToString()


def requests_of(first: AuthenticateRequest) -> Iterator[AuthenticateRequest]:
    """Return the requests for a token: ``first`` with its first part, and one for each further part.

    The further ones need the id of the exchange.
    """
    parts = [first.auth_bytes[at : at + PART_BYTES] for at in range(0, len(first.auth_bytes), PART_BYTES)] or [b""]
    last = len(parts) - 1
    yield replace(first, auth_bytes=parts[0], has_more=last > 0)
    for number, part in enumerate(parts[1:], start=1):
        yield AuthenticateRequest(auth_bytes=part, has_more=number < last)


def authorization(token: str) -> tuple[str, str]:
    """Return the metadata of a call with a session."""
    return AUTHORIZATION, _SCHEME + token


def token_in(value: str) -> str | None:
    """Return the token in the metadata's value, or None if it has another scheme."""
    return value.removeprefix(_SCHEME) if value.startswith(_SCHEME) else None
