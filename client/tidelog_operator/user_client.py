"""Calls about one user. Every function blocks, so the event loop calls it in a thread."""

from __future__ import annotations

from tidelog.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ClientQuotaAlteration,
    ClientQuotaAlterationOp,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tidelog_cli.output.printing import settle
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_operator.cluster_client import TIMEOUT_S
from tidelog_operator.users import Changes, UserSpec, UserState

_ITERATIONS = 4096
_MECHANISM = ScramMechanism.SCRAM_SHA_512


def read_user(admin: AdminClient, spec: UserSpec, credential: str) -> UserState:
    """Return a user as it is. ``credential`` is the version of the Secret that was last written."""
    quotas = admin.describe_client_quotas(
        ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity(ClientQuotaEntity.USER, spec.name)]),
        request_timeout=TIMEOUT_S,
    ).result()
    found = quotas.get(ClientQuotaEntity({ClientQuotaEntity.USER: spec.name}), {})
    return UserState(_has_credential(admin, spec.name), credential, _acls(admin, spec), found)


def change_user(admin: AdminClient, spec: UserSpec, change: Changes, password: bytes) -> None:
    """Make the changes; rights go before others come.

    Raises:
        TidelogError: the cluster refuses one.
    """
    if change.writes_credential:
        info = ScramCredentialInfo(_MECHANISM, _ITERATIONS)
        _alter_credential(admin, UserScramCredentialUpsertion(spec.name, info, password))
    if change.deletes_credential:
        _alter_credential(admin, UserScramCredentialDeletion(spec.name, _MECHANISM))
    if change.removed_acls:
        filters = [
            AclBindingFilter(
                a.restype, a.name, a.resource_pattern_type, a.principal, a.host, a.operation, a.permission_type
            )
            for a in change.removed_acls
        ]
        for deleted in admin.delete_acls(filters, request_timeout=TIMEOUT_S).values():
            deleted.result()
    if change.added_acls:
        _, errors = settle(admin.create_acls(change.added_acls, request_timeout=TIMEOUT_S))
        for error in errors.values():
            raise error
    if change.quotas:
        entity = ClientQuotaEntity({ClientQuotaEntity.USER: spec.name})
        ops = [ClientQuotaAlterationOp(key, value) for key, value in change.quotas.items()]
        alteration = ClientQuotaAlteration(entity, ops)
        admin.alter_client_quotas([alteration], request_timeout=TIMEOUT_S)[entity].result()


def _has_credential(admin: AdminClient, user: str) -> bool:
    try:
        found = admin.describe_user_scram_credentials([user], request_timeout=TIMEOUT_S)[user].result()
    except TidelogError as error:
        if error.code is ErrorCode.RESOURCE_NOT_FOUND:
            return False
        raise
    return any(info.mechanism is _MECHANISM for info in found.scram_credential_infos)


def _acls(admin: AdminClient, spec: UserSpec) -> tuple[AclBinding, ...]:
    """Return the ACLs of the user; a cluster without an authorizer has none."""
    anything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        spec.principal,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    try:
        return tuple(admin.describe_acls(anything, request_timeout=TIMEOUT_S).result())
    except TidelogError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return ()
        raise


def _alter_credential(admin: AdminClient, change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
    admin.alter_user_scram_credentials([change], request_timeout=TIMEOUT_S)[change.user].result()
