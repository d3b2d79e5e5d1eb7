"""The decisions of an authorizer, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidelog_foundation.authorization.authorizer import Action, Authorizer, RequestOrigin
from tidelog_foundation.ids import AclId
from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.requests.acls import AclBinding, AclOperation, ResourceType

_PLUGIN: Final = "kafka.server:type=plugins,config=authorizer.class.name,class=StandardAuthorizer,role=broker"
DECISIONS: Final = Metric(
    "tidelog_authorizer_decisions_total",
    Kind.COUNTER,
    "Decisions about operations on resources that callers named. Repeated permissions of a connection count once.",
    labels=("operation", "resource_type", "decision"),
    kafka=tuple(f"{_PLUGIN}: authorization-{rate}-rate-per-minute" for rate in ("allowed", "denied", "request")),
)
METRICS: Final = (DECISIONS,)


class CountedAuthorizer(Authorizer):
    """An authorizer that counts the decisions of another one, which has been configured."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._counts: Counter[tuple[AclOperation, ResourceType, bool]] = Counter()

    async def start(self) -> None:
        """Start the other authorizer."""
        await self._authorizer.start()

    def authorize(self, origin: RequestOrigin, actions: Sequence[Action]) -> Sequence[bool]:
        """Return for each action whether it is allowed."""
        decisions = self._authorizer.authorize(origin, actions)
        for action, is_allowed in zip(actions, decisions, strict=True):
            if action.log_if_denied:
                self._counts[action.operation, action.resource_type, is_allowed] += 1
        return decisions

    def authorize_by_resource_type(
        self, origin: RequestOrigin, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether an operation is allowed on at least one resource of a type (KIP-679)."""
        is_allowed = self._authorizer.authorize_by_resource_type(origin, operation, resource_type)
        self._counts[operation, resource_type, is_allowed] += 1
        return is_allowed

    @property
    def decides_by_acls(self) -> bool:
        """True if permissions depend on the ACLs alone."""
        return self._authorizer.decides_by_acls

    def set_acls(self, acls: Mapping[AclId, AclBinding]) -> None:
        """Pass the ACLs of the metadata log on."""
        self._authorizer.set_acls(acls)

    def families(self) -> Iterable[Family]:
        """Return the number of decisions."""
        yield DECISIONS.of(
            {
                (operation.name.lower(), kind.name.lower(), "allowed" if is_allowed else "denied"): count
                for (operation, kind, is_allowed), count in self._counts.items()
            }
        )
