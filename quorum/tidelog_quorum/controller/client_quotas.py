"""Changes of client quotas, as in Kafka's ClientQuotaControlManager.

Rules:

- an entity is a user, a client id, both, or an address, each by name or the default of its type;
- each entity is changed or refused by itself; one that is named again, or a key that is named twice, is refused;
- a value that is set already and the removal of one that is not set write nothing;
- all records of a request are one atomic entry.

Unlike Kafka, an address is not the name of a host, which a controller would have to resolve, and a value is finite.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests import quotas as requests
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.features import METADATA_VERSION, SECURITY_VERSION
from tidelog_quorum.metadata.records import ClientQuotaRecord

_MAX_ENTITIES: Final = 100_000
"""The largest number of entities with quotas in a cluster."""
_MAX_NAME: Final = 1_024
"""The most characters of an entity's name."""
_FRACTION: Final = 1e-6
"""The largest fraction of a whole number, as in Kafka."""
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_CLIENT_KEYS: Final[Mapping[str, int | None]] = {
    requests.PRODUCER_BYTE_RATE: _LONG_MAX,
    requests.CONSUMER_BYTE_RATE: _LONG_MAX,
    requests.REQUEST_PERCENTAGE: None,
    requests.CONTROLLER_MUTATION_RATE: None,
}
"""The quotas of users and client ids, with the largest value of those that are whole numbers."""
_IP_KEYS: Final[Mapping[str, int | None]] = {requests.CONNECTION_CREATION_RATE: _INT_MAX}


def alter_client_quotas(
    state: ControllerState, request: requests.AlterClientQuotasRequest, now_ms: int
) -> Result[requests.AlterClientQuotasResponse]:
    """Change the quotas of the entities that are valid.

    Raises:
        TidelogError: UNSUPPORTED_VERSION, the level of ``metadata.version`` has no quotas; POLICY_VIOLATION, the
            cluster would have too many entities.
    """
    image = state.latest
    if image.feature_levels.get(METADATA_VERSION, 0) < SECURITY_VERSION:
        text = f"client quotas need {METADATA_VERSION} {SECURITY_VERSION}: upgrade the feature first"
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)
    errors: dict[requests.QuotaEntity, TidelogError | None] = {}
    changes: dict[requests.QuotaEntity, list[ClientQuotaRecord]] = {}
    for alteration in request.alterations:
        entity = requests.entity_of(requests.names_of(alteration.entity))
        is_again = entity in errors
        try:
            if is_again or len({op.key for op in alteration.ops}) < len(alteration.ops):
                raise _invalid(f"Ignoring duplicate entity {_text(entity)}")
            changes[entity] = _records(image.client_quotas.get(entity, {}), entity, alteration.ops)
            errors[entity] = None
        except TidelogError as error:
            errors[entity] = error.detached()
    _check_count(image.client_quotas, changes)
    records = [] if request.validate_only else [record for each in changes.values() for record in each]
    results = tuple(requests.QuotaAlterationResult(entity, error) for entity, error in errors.items())
    return Result(records, requests.AlterClientQuotasResponse(results))


def _records(
    present: Mapping[str, float], entity: requests.QuotaEntity, ops: Iterable[requests.QuotaOp]
) -> list[ClientQuotaRecord]:
    keys = _keys_of(entity)
    records = []
    for op in ops:
        if op.remove:
            if op.key in present:
                records.append(ClientQuotaRecord(entity, op.key, remove=True))
            continue
        _check_value(keys, op.key, op.value)
        if present.get(op.key) != op.value:
            records.append(ClientQuotaRecord(entity, op.key, op.value))
    return records


def _keys_of(entity: requests.QuotaEntity) -> Mapping[str, int | None]:
    """Return the quotas that an entity may have, or raise TidelogError if there is no such entity."""
    names = requests.names_of(entity)
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in requests.ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if name is not None and len(name) > _MAX_NAME:
            raise _invalid(f"The name of the {kind} has {len(name)} characters, {_MAX_NAME} are the limit")
    if requests.IP not in names:
        return _CLIENT_KEYS
    if len(names) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    address = names[requests.IP]
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP address")
    return _IP_KEYS


def _check_value(keys: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise _invalid(f"Quota {key} must be a finite number, not {value}")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    greatest = keys[key]
    if greatest is None:
        return
    if value > greatest:
        raise _invalid(f"Proposed value for {key} is too large for {'an INT' if greatest == _INT_MAX else 'a LONG'}.")
    if value % 1 > _FRACTION:
        raise _invalid(f"{key} cannot be a fractional value.")


def _check_count(
    present: Mapping[requests.QuotaEntity, Mapping[str, float]],
    changes: Mapping[requests.QuotaEntity, list[ClientQuotaRecord]],
) -> None:
    new = sum(entity not in present and bool(records) for entity, records in changes.items())
    if new and len(present) + new > _MAX_ENTITIES:
        text = f"the cluster would have quotas of {len(present) + new} entities, {_MAX_ENTITIES} are the limit"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _text(entity: requests.QuotaEntity) -> str:
    """Return an entity as Kafka prints it."""
    entries = ", ".join(
        f"{part.entity_type}={'null' if part.entity_name is None else part.entity_name}" for part in entity
    )
    return f"ClientQuotaEntity(entries={{{entries}}})"


def _invalid(text: str) -> TidelogError:
    return error_for(ErrorCode.INVALID_REQUEST, text)
