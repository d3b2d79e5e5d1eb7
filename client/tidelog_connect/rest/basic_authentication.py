"""Basic authentication of requests by a file of names and passwords.

It has the behavior of Kafka Connect's BasicAuthSecurityRestExtension with PropertyFileLoginModule, except that a file
without users is an error and does not permit all requests.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
from collections.abc import Mapping

import javaproperties

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.limited_files import read_file

logger = logging.getLogger(__name__)

_MAX_BYTES = 1024**2
_MAX_CREDENTIALS = 4096
"""The longest header that is decoded."""


class Users:
    """Passwords by name."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = {name: password.encode() for name, password in passwords.items()}

    @classmethod
    def read(cls, path: str) -> Users:
        """Return the users of a properties file.

        Raises:
            ConfigError: The file cannot be read, or has no user.
        """
        setting = "rest.basic.auth.credentials.file"
        try:
            found = javaproperties.loads(read_file(path, _MAX_BYTES, setting).decode())
        except ValueError as error:
            raise ConfigError(f"{setting}: {path} is not a properties file: {error}") from error
        if not found:
            raise ConfigError(f"{setting}: {path} has no users, so that no request would be allowed")
        return cls(found)

    def accept(self, authorization: str | None) -> bool:
        """Tell whether a header ``Authorization`` has the name and password of a user."""
        method, _, encoded = (authorization or "").partition(" ")
        if method.lower() != "basic" or len(encoded) > _MAX_CREDENTIALS:
            return False
        try:
            name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        expected = self._passwords.get(name)
        # An unknown name takes the time of a known one.
        is_equal = hmac.compare_digest(password.encode(), expected if expected is not None else b"\0")
        return bool(colon) and expected is not None and is_equal
