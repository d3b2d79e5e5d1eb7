"""The limits of one quota by entity, and the one that applies to a client (KIP-55).

The most specific entity counts, in this order:

- the user with the client id, the user with the default client id, the user;
- the default user with the client id, the default user with the default client id, the default user;
- the client id, the default client id.

The clients of a user, or with a client id, share the limit if the entity is that user or client id, or the default of
one. Every pair of a user and a client id has a limit of its own if the entity has both. A client without an id matches
users alone, as in Kafka's DefaultQuotaCallback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from tidelog_foundation.requests.quotas import CLIENT_ID, IP, USER, QuotaEntity, names_of

DEFAULT: Final = None
"""The name of a default entity."""


class _Absent:
    """The name of a part that an entity does not have."""


_ABSENT: Final = _Absent()
_Name: TypeAlias = "str | _Absent | None"


class SharedLimit(NamedTuple):
    """A limit, and the user and client id that share it; empty: it is for all users or all client ids."""

    limit: float
    user: str
    client_id: str


class ClientLimits:
    """The limits of one quota, such as ``producer_byte_rate``."""

    __slots__ = ("_limits",)

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> None:
        self._limits: dict[tuple[_Name, _Name], float] = {}
        for entity, limits in quotas.items():
            names = names_of(entity)
            if key in limits and IP not in names:
                self._limits[names.get(USER, _ABSENT), names.get(CLIENT_ID, _ABSENT)] = limits[key]

    def __bool__(self) -> bool:
        """Return whether there is any limit."""
        return bool(self._limits)

    def limit_of(self, user: str, client_id: str) -> SharedLimit | None:
        """Return the limit of a client, or None if it has none."""
        limits = self._limits
        for name in (user, DEFAULT):
            if client_id:
                for other in (client_id, DEFAULT):
                    limit = limits.get((name, other))
                    if limit is not None:
                        return SharedLimit(limit, user, client_id)
            limit = limits.get((name, _ABSENT))
            if limit is not None:
                return SharedLimit(limit, user, "")
        if client_id:
            for other in (client_id, DEFAULT):
                limit = limits.get((_ABSENT, other))
                if limit is not None:
                    return SharedLimit(limit, "", client_id)
        return None


class AddressLimits:
    """The limits of addresses: ``connection_creation_rate`` (KIP-612)."""

    __slots__ = ("_limits",)

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> None:
        self._limits = {
            names[IP]: limits[key]
            for entity, limits in quotas.items()
            if key in limits and IP in (names := names_of(entity))
        }

    def __bool__(self) -> bool:
        """Return whether there is any limit."""
        return bool(self._limits)

    def limit_of(self, address: str) -> float | None:
        """Return the limit of an address, or None if it has none."""
        limit = self._limits.get(address)
        return limit if limit is not None else self._limits.get(DEFAULT)
