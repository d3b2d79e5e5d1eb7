"""Client quotas (KIP-546). confluent-kafka has no such operations; the names are those of Kafka's Java client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidelog.admin.operations import Future, Operations, Outcomes, change_timeout_ms
from tidelog.cluster.answers import error_of
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import common_pb2 as common_pb
from tidelog_foundation.requests.quotas import ENTITY_TYPES, MATCH_ANY, MATCH_DEFAULT, MATCH_EXACT


class ClientQuotaEntity:
    """An entity with quotas: a user, a client id, both, or an address.

    ``entries`` are the names by type, such as ``{"user": "alice", "client-id": None}``. None is the default of its
    type, which applies to all that have no limit of their own. Entities are hashable.
    """

    USER: Final = "user"
    CLIENT_ID: Final = "client-id"
    IP: Final = "ip"

    __slots__ = ("entries",)

    def __init__(self, entries: Mapping[str, str | None]) -> None:
        _check_types(entries)
        self.entries: Final[dict[str, str | None]] = dict(entries)

    def __eq__(self, other: object) -> bool:
        return self.entries == other.entries if isinstance(other, ClientQuotaEntity) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self.entries.items()))

    def __repr__(self) -> str:
        return f"ClientQuotaEntity({self.entries!r})"


class ClientQuotaAlterationOp:
    """A value to set, or with the value None to remove."""

    __slots__ = ("key", "value")

    def __init__(self, key: str, value: float | None) -> None:
        self.key: Final = key
        self.value: Final = None if value is None else float(value)

    def __repr__(self) -> str:
        return f"ClientQuotaAlterationOp({self.key!r}, {self.value!r})"


class ClientQuotaAlteration:
    """The changes of one entity."""

    __slots__ = ("entity", "ops")

    def __init__(self, entity: ClientQuotaEntity, ops: Iterable[ClientQuotaAlterationOp]) -> None:
        self.entity: Final = entity
        self.ops: Final = tuple(ops)

    def __repr__(self) -> str:
        return f"ClientQuotaAlteration({self.entity!r}, {list(self.ops)!r})"


class ClientQuotaFilterComponent:
    """A condition on one type of entity, made by one of the class methods."""

    __slots__ = ("entity_type", "match", "match_type")

    def __init__(self, entity_type: str, match_type: int, match: str | None) -> None:
        _check_types((entity_type,))
        self.entity_type: Final = entity_type
        self.match_type: Final = match_type
        self.match: Final = match

    @classmethod
    def of_entity(cls, entity_type: str, entity_name: str) -> ClientQuotaFilterComponent:
        """Match the entity with this name."""
        return cls(entity_type, MATCH_EXACT, entity_name)

    @classmethod
    def of_default_entity(cls, entity_type: str) -> ClientQuotaFilterComponent:
        """Match the default entity of this type."""
        return cls(entity_type, MATCH_DEFAULT, None)

    @classmethod
    def of_entity_type(cls, entity_type: str) -> ClientQuotaFilterComponent:
        """Match every entity of this type, the default included."""
        return cls(entity_type, MATCH_ANY, None)


class ClientQuotaFilter:
    """A filter of entities, which meet all components. A strict one excludes entities with further types."""

    __slots__ = ("components", "strict")

    def __init__(self, components: Iterable[ClientQuotaFilterComponent], *, strict: bool = False) -> None:
        self.components: Final = tuple(components)
        self.strict: Final = strict

    @classmethod
    def contains(cls, components: Iterable[ClientQuotaFilterComponent]) -> ClientQuotaFilter:
        """Match the entities that meet all components."""
        return cls(components)

    @classmethod
    def contains_only(cls, components: Iterable[ClientQuotaFilterComponent]) -> ClientQuotaFilter:
        """Match the entities that meet all components and have no further types."""
        return cls(components, strict=True)

    @classmethod
    def all(cls) -> ClientQuotaFilter:
        """Match all entities."""
        return cls(())


class QuotaAdmin(Operations):
    """Operations on client quotas."""

    def alter_client_quotas(
        self,
        entries: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        request_timeout: float | None = None,
    ) -> dict[ClientQuotaEntity, Future[None]]:
        """Set and remove quotas, each entity by itself. ``request_timeout`` is in seconds.

        A future fails with KafkaException: INVALID_REQUEST if the entity or a value is invalid.
        """
        wanted = list(entries)
        request = pb.AlterClientQuotasRequest(
            alterations=map(_alteration, wanted),
            validate_only=validate_only,
            timeout_ms=change_timeout_ms(request_timeout),
        )

        async def alter() -> Outcomes[ClientQuotaEntity, None]:
            response = await self._change(lambda c, t: c.admin.AlterClientQuotas(request, timeout=t), request_timeout)
            return {_entity(result.entity): error_of(result) for result in response.results}

        return self._futures(list(dict.fromkeys(each.entity for each in wanted)), alter())

    def describe_client_quotas(
        self, filter: ClientQuotaFilter, *, request_timeout: float | None = None
    ) -> Future[dict[ClientQuotaEntity, dict[str, float]]]:
        """Return the quotas of the entities that match a filter, by key.

        The future fails with KafkaException: INVALID_REQUEST if the filter is invalid.
        """
        components = [
            pb.QuotaFilterComponent(entity_type=c.entity_type, match_type=c.match_type, match=c.match)
            for c in filter.components
        ]
        request = pb.DescribeClientQuotasRequest(components=components, strict=filter.strict)

        async def describe() -> dict[ClientQuotaEntity, dict[str, float]]:
            response = await self._ask(lambda c, t: c.admin.DescribeClientQuotas(request, timeout=t), request_timeout)
            return {_entity(entry.entity): {v.key: v.value for v in entry.values} for entry in response.entries}

        return self._future(describe())


def _alteration(each: ClientQuotaAlteration) -> pb.QuotaAlteration:
    parts = [
        common_pb.QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in each.entity.entries.items()
    ]
    ops = [pb.QuotaOp(key=op.key, value=op.value or 0.0, remove=op.value is None) for op in each.ops]
    return pb.QuotaAlteration(entity=parts, ops=ops)


def _entity(parts: Iterable[Any]) -> ClientQuotaEntity:
    return ClientQuotaEntity({p.entity_type: p.entity_name if p.HasField("entity_name") else None for p in parts})


def _check_types(types: Iterable[str]) -> None:
    for kind in types:
        if kind not in ENTITY_TYPES:
            raise ValueError(f"the type of a quota entity must be one of {', '.join(ENTITY_TYPES)}, not {kind!r}")
