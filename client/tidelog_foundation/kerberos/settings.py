"""The settings of GSSAPI, with the keys and defaults of Kafka."""

from __future__ import annotations

from tidelog_foundation.config.settings import setting
from tidelog_foundation.config.validators import not_empty
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.kerberos.local_names import LocalNames


def _rules(values: tuple[str, ...]) -> None:
    LocalNames(None, values)


# Not slotted: the settings of servers inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class KerberosSettings:
    """The settings of Kerberos."""

    sasl_kerberos_service_name: str | None = setting(
        None,
        "The name of the nodes' Kerberos principals, such as kafka in kafka/host@EXAMPLE.COM, in place of the option "
        "serviceName of sasl.jaas.config.",
        not_empty,
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = setting(
        ("DEFAULT",),
        "The rules that map Kerberos principals to names of users, in the language of Kafka: RULE:... with an optional "
        "/L or /U, or DEFAULT, which removes the default realm. The first that applies decides. Rules cannot contain "
        "commas.",
        _rules,
    )
