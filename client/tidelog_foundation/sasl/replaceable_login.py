"""A client's name and password that may be replaced while the client runs."""

from __future__ import annotations

from collections.abc import Callable

from tidelog_foundation.sasl.mechanism import SaslClient, SaslLogin


class ReplaceableLogin:
    """The login with the current credentials. Thread-safe: an exchange uses one version of them."""

    def __init__(self, make: Callable[[str, str], SaslLogin], username: str, password: str) -> None:
        """``make`` returns the login with a name and a password."""
        self._make = make
        self._current = make(username, password)

    @property
    def mechanism(self) -> str:
        """The mechanism's registered name."""
        return self._current.mechanism

    def client(self, host: str) -> SaslClient:
        """Begin an exchange."""
        return self._current.client(host)

    def replace(self, username: str, password: str) -> None:
        """Use another name and password for all later exchanges."""
        self._current = self._make(username, password)
