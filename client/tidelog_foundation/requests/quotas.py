"""Client quotas: the limits of users, client ids and addresses, as entities with values (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.request import Request

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

MATCH_EXACT: Final = 0
"""The entity with the name of the filter."""
MATCH_DEFAULT: Final = 1
"""The default entity."""
MATCH_ANY: Final = 2
"""Every entity of the type, the default included."""


@dataclass(frozen=True, slots=True)
class QuotaEntityPart:
    """A user, client id or address; the name None stands for the default of its type."""

    entity_type: str
    entity_name: str | None = None


QuotaEntity: TypeAlias = tuple[QuotaEntityPart, ...]
"""The parts of an entity, each type once, ordered by type (see :func:`entity_of`)."""


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Return the entity with these names by type."""
    return tuple(QuotaEntityPart(kind, name) for kind, name in sorted(parts.items()))


def names_of(parts: Iterable[QuotaEntityPart]) -> dict[str, str | None]:
    """Return the names of an entity's parts by type. Of a type that occurs twice, the last counts, as in Kafka."""
    return {part.entity_type: part.entity_name for part in parts}


@dataclass(frozen=True, slots=True)
class QuotaOp:
    """A value to set, or to remove."""

    key: str
    value: float = 0.0
    remove: bool = False


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """The changes of one entity."""

    entity: tuple[QuotaEntityPart, ...] = ()
    ops: tuple[QuotaOp, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaAlterationResult:
    """The outcome for one entity."""

    entity: tuple[QuotaEntityPart, ...] = ()
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class AlterClientQuotasResponse:
    """One result per entity of the request."""

    results: tuple[QuotaAlterationResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterClientQuotasRequest(Request[AlterClientQuotasResponse]):
    """A request to change quotas. Each entity is changed or refused by itself."""

    alterations: tuple[QuotaAlteration, ...] = ()
    validate_only: bool = False
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class QuotaFilterComponent:
    """A condition on one type of entity: ``match_type`` is Kafka's number, ``match`` the name of MATCH_EXACT."""

    entity_type: str
    match_type: int = MATCH_EXACT
    match: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaValue:
    """A limit."""

    key: str
    value: float


@dataclass(frozen=True, slots=True)
class QuotaDescription:
    """An entity with its limits."""

    entity: tuple[QuotaEntityPart, ...] = ()
    values: tuple[QuotaValue, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasResponse:
    """The entities that match, in any order."""

    entries: tuple[QuotaDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasRequest(Request[DescribeClientQuotasResponse]):
    """A request for the quotas that match all components.

    With ``strict``, an entity has no types beside those of the components.
    """

    components: tuple[QuotaFilterComponent, ...] = ()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class QuotaClient:
    """The client of a forwarded request, for the quota of mutations (KIP-599).

    If the quota is exceeded, mutations of a client with ``is_strict`` are refused; others are only delayed.
    """

    user: str
    client_id: str = ""
    is_strict: bool = True
