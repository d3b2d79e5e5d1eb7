"""The resource ``TidelogUser``: what its user lacks. Pure.

The ACLs of the user's principal and the quotas of the user are those of the resource and no others, so that drift is
repaired. A credential is written when the user has none, and when the Secret with its password has changed since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from tidelog_operator.conditions import Refusal

SCRAM: Final = "scram-sha-512"
TLS: Final = "tls"
_CLUSTER_NAME = "kafka-cluster"
_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
}
_QUOTAS: Final = {
    "producerByteRate": "producer_byte_rate",
    "consumerByteRate": "consumer_byte_rate",
    "requestPercentage": "request_percentage",
    "controllerMutationRate": "controller_mutation_rate",
}


@dataclass(frozen=True, slots=True)
class UserSpec:
    """A wanted user. ``secret`` has the password, and is None for a user with a certificate."""

    cluster: str
    name: str
    secret: str | None
    acls: frozenset[AclBinding]
    quotas: Mapping[str, float]

    @property
    def principal(self) -> str:
        """The principal, for passwords as for certificates: their common name is the user's."""
        return f"User:{self.name}"


@dataclass(frozen=True, slots=True)
class UserState:
    """A user as it is. ``credential`` is the version of the Secret that was last written, empty if none was."""

    has_credential: bool = False
    credential: str = ""
    acls: Collection[AclBinding] = ()
    quotas: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a user needs. Quotas with None are removed."""

    writes_credential: bool
    deletes_credential: bool
    added_acls: tuple[AclBinding, ...]
    removed_acls: tuple[AclBinding, ...]
    quotas: Mapping[str, float | None]


def parse_user(resource: Mapping[str, Any]) -> UserSpec:
    """Return the user that a resource describes.

    Raises:
        Refusal: an ACL is not valid.
    """
    spec, name = resource["spec"], resource["metadata"]["name"]
    authentication = spec.get("authentication") or {"type": SCRAM}
    secret = authentication.get("secretName", name) if authentication["type"] == SCRAM else None
    acls = frozenset(acl for rule in spec.get("acls") or () for acl in _bindings(f"User:{name}", rule))
    quotas = {_QUOTAS[key]: float(value) for key, value in (spec.get("quotas") or {}).items()}
    return UserSpec(spec["cluster"], name, secret, acls, quotas)


def changes(spec: UserSpec, state: UserState, secret_version: str) -> Changes:
    """Return what to change. ``secret_version`` is that of the Secret with the password, if there is one."""
    quotas: dict[str, float | None] = {k: v for k, v in spec.quotas.items() if state.quotas.get(k) != v}
    quotas |= dict.fromkeys(state.quotas.keys() - spec.quotas.keys())
    has_password = spec.secret is not None
    return Changes(
        has_password and (not state.has_credential or state.credential != secret_version),
        not has_password and state.has_credential,
        tuple(sorted(spec.acls - set(state.acls))),
        tuple(sorted(set(state.acls) - spec.acls)),
        quotas,
    )


def _bindings(principal: str, rule: Mapping[str, Any]) -> list[AclBinding]:
    target = rule["resource"]
    kind = target["type"]
    name = target.get("name", _CLUSTER_NAME if kind == "cluster" else "*")
    pattern = ResourcePatternType[target.get("patternType", "literal").upper()]
    permission = AclPermissionType[rule.get("type", "allow").upper()]
    try:
        return [
            AclBinding(
                _TYPES[kind], name, pattern, principal, rule.get("host", "*"), AclOperation[operation], permission
            )
            for operation in rule["operations"]
        ]
    except (KeyError, ValueError) as error:
        raise Refusal("InvalidAcl", f"an ACL of {kind} {name} is not valid: {error}") from error
