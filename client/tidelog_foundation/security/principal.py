"""Principals: the authenticated identities of callers, as in Kafka's KafkaPrincipal."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError

USER: Final = "User"
"""The kind of every principal that a listener authenticates."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An identity of a kind, such as ``User:alice``. Both parts are case-sensitive."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return the principal that ``kind:name`` denotes. The name may contain colons.

        Raises:
            ConfigError: The kind or the name is missing; the message contains the text.
        """
        kind, _, name = text.strip().partition(":")
        if not kind or not name:
            raise ConfigError(f'invalid principal "{text}": must be kind:name, for example User:alice')
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a caller that the listener does not authenticate."""
