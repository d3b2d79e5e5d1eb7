"""The selection of client quotas by a filter (KIP-546), as in Kafka's ClientQuotasImage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests import quotas as requests
from tidelog_foundation.requests.quotas import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    USER,
    QuotaEntity,
    QuotaFilterComponent,
)


class QuotaFilter:
    """A filter of entities, checked once."""

    def __init__(self, components: Iterable[QuotaFilterComponent], *, strict: bool) -> None:
        """Check the filter.

        Raises:
            TidelogError: INVALID_REQUEST, a component is invalid or its type is named twice; UNSUPPORTED_VERSION, the
                type is unknown.
        """
        self._strict = strict
        self._names: dict[str, str | None] = {}
        self._any: set[str] = set()
        for component in components:
            self._add(component)
        types = self._names.keys() | self._any
        if IP in types and types & {USER, CLIENT_ID}:
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )
        self._count = len(types)

    def matches(self, entity: QuotaEntity) -> bool:
        """Return whether an entity meets all components."""
        if not self._count:
            # As in Kafka, a strict filter without components matches nothing.
            return not self._strict
        if self._strict and len(entity) != self._count:
            return False
        names = requests.names_of(entity)
        return self._any <= names.keys() and all(
            kind in names and names[kind] == name for kind, name in self._names.items()
        )

    def _add(self, component: QuotaFilterComponent) -> None:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in self._names or kind in self._any:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        match component.match_type:
            case requests.MATCH_EXACT:
                if component.match is None:
                    raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
                self._names[kind] = component.match
            case requests.MATCH_DEFAULT:
                _check_without_match(component, "MATCH_TYPE_DEFAULT")
                self._names[kind] = None
            case requests.MATCH_ANY:
                _check_without_match(component, "MATCH_TYPE_SPECIFIED")
                self._any.add(kind)
            case unknown:
                raise _invalid(f"Unknown match type {unknown}")


def describe_entity(entity: QuotaEntity, limits: Mapping[str, float]) -> requests.QuotaDescription:
    """Return an entity with its limits."""
    return requests.QuotaDescription(entity, tuple(requests.QuotaValue(key, limits[key]) for key in sorted(limits)))


def _check_without_match(component: QuotaFilterComponent, name: str) -> None:
    if component.match is not None:
        raise _invalid(f"Request specified {name}, but also specified a match string.")


def _invalid(text: str) -> TidelogError:
    return error_for(ErrorCode.INVALID_REQUEST, text)
