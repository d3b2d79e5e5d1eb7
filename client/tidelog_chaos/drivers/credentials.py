"""Changes of users' credentials in a cluster with SASL, which must not disturb clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tidelog_foundation.errors import TidelogError

_TIMEOUT_S: Final = 5.0
_OTHER: Final = "chaos-other-user"
_OTHER_PASSWORD: Final = b"not used to log in"
_INFO: Final = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)


def change_credentials(settings: Mapping[str, str], password: str, kind: str) -> bool:
    """Replace the credential of the user of ``settings`` by one with another salt for the ``same-password``, or create
    and delete the credential of an ``other-user``. Return False if the cluster did not answer in time.
    """
    with AdminClient(settings) as admin:
        if kind == "same-password":
            user = settings["sasl.username"]
            return _alter(admin, UserScramCredentialUpsertion(user, _INFO, password.encode()))
        created = _alter(admin, UserScramCredentialUpsertion(_OTHER, _INFO, _OTHER_PASSWORD))
        return created and _alter(admin, UserScramCredentialDeletion(_OTHER, _INFO.mechanism))


def _alter(admin: AdminClient, change: UserScramCredentialAlteration) -> bool:
    try:
        admin.alter_user_scram_credentials([change])[change.user].result(_TIMEOUT_S)
    except (TidelogError, TimeoutError):
        return False
    return True
