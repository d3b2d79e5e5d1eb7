"""The messages of SCRAM (RFC 5802, section 7), parsed and written.

A message keeps the text that both sides sign. Errors never contain text of a message, which can be secret.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

from tidelog_foundation.dataclass import dataclass

_MAX_BYTES: Final = 8_192
"""The largest message: far more than names, nonces and salts need."""
_NAME = "(?:[^\x00=,]|=2C|=3D)+"
_VALUE = "[^\x00,]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = "[A-Za-z0-9+/]*={0,2}"
_EXTENSIONS = f"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    f"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(f"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(
    f"(?P<unsigned>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(f"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class MalformedMessage(ValueError):
    """A message that does not follow the grammar; the text is for logs."""


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message of a client: ``n,[a=authzid],n=user,r=nonce[,extensions]``. Channel binding is refused.

    ``gs2`` is its header, and ``bare`` the rest. Names are decoded.
    """

    gs2: str
    bare: str
    authorization_id: str
    name: str
    nonce: str
    extensions: dict[str, str]

    @classmethod
    def parse(cls, message: bytes) -> ClientFirst:
        """Return the message.

        Raises:
            MalformedMessage: It is not a client's first message, or too long.
        """
        found = _match(_CLIENT_FIRST, message, "client-first")
        pairs = (part.partition("=") for part in found["extensions"].split(",")[1:])
        return cls(
            found["gs2"],
            found["bare"],
            _decoded(found["authzid"] or ""),
            _decoded(found["name"]),
            found["nonce"],
            {name: value for name, _, value in pairs},
        )


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The first message of a server: ``r=nonce,s=salt,i=iterations[,extensions]``."""

    text: str
    nonce: str
    salt: bytes
    iterations: int

    @classmethod
    def parse(cls, message: bytes) -> ServerFirst:
        """Return the message.

        Raises:
            MalformedMessage: It is not a server's first message, or too long.
        """
        found = _match(_SERVER_FIRST, message, "server-first")
        return cls(found[0], found["nonce"], _bytes(found["salt"], "salt"), int(found["iterations"]))

    @classmethod
    def of(cls, nonce: str, salt: bytes, iterations: int) -> ServerFirst:
        """Return the message with a nonce, which begins with the client's."""
        return cls(f"r={nonce},s={_text(salt)},i={iterations}", nonce, salt, iterations)


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The final message of a client: ``c=binding,r=nonce[,extensions],p=proof``; ``unsigned`` ends before the proof."""

    unsigned: str
    binding: bytes
    nonce: str
    proof: bytes

    @classmethod
    def parse(cls, message: bytes) -> ClientFinal:
        """Return the message.

        Raises:
            MalformedMessage: It is not a client's final message, or too long.
        """
        found = _match(_CLIENT_FINAL, message, "client-final")
        binding, proof = _bytes(found["binding"], "binding"), _bytes(found["proof"], "proof")
        return cls(found["unsigned"], binding, found["nonce"], proof)


@dataclass(frozen=True, slots=True)
class ServerFinal:
    """The final message of a server: ``v=signature``, or ``e=error``."""

    signature: bytes
    error: str | None

    @classmethod
    def parse(cls, message: bytes) -> ServerFinal:
        """Return the message.

        Raises:
            MalformedMessage: It is not a server's final message, or too long.
        """
        found = _match(_SERVER_FINAL, message, "server-final")
        return cls(_bytes(found["signature"] or "", "signature"), found["error"])


def client_first(name: str, nonce: str, extensions: Mapping[str, str]) -> tuple[str, str]:
    """Return the header and the rest of a client's first message."""
    pairs = "".join(f",{key}={value}" for key, value in extensions.items())
    return "n,,", f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}{pairs}"


def client_final_unsigned(gs2: str, nonce: str) -> str:
    """Return a client's final message before the proof."""
    return f"c={_text(gs2.encode())},r={nonce}"


def client_final(unsigned: str, proof: bytes) -> bytes:
    """Return a client's final message."""
    return f"{unsigned},p={_text(proof)}".encode()


def server_final(signature: bytes) -> bytes:
    """Return a server's final message after a success."""
    return f"v={_text(signature)}".encode()


def _match(pattern: re.Pattern[str], message: bytes, what: str) -> re.Match[str]:
    if len(message) > _MAX_BYTES:
        raise MalformedMessage(f"{what} message has {len(message)} bytes, {_MAX_BYTES} are the limit")
    try:
        found = pattern.fullmatch(message.decode())
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"{what} message is not UTF-8") from error
    if found is None:
        raise MalformedMessage(f"invalid {what} message of {len(message)} bytes")
    return found


def _decoded(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _bytes(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise MalformedMessage(f"the {what} is not base64") from error


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
