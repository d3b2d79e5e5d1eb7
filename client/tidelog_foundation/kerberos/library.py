"""The security contexts of python-gssapi, with the key tables of ``sasl.jaas.config``.

The configuration of Kerberos is that of the operating system: ``/etc/krb5.conf``, or the file in ``KRB5_CONFIG``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeVar

import gssapi
from gssapi.raw.misc import GSSError

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.kerberos.local_names import LocalNames
from tidelog_foundation.sasl.gssapi import GssapiLogin, GssapiMechanism, GssError, SecurityContext
from tidelog_foundation.sasl.jaas import KRB5_LOGIN_MODULE, JaasEntry

T = TypeVar("T")
_KEY_TABLE_VERSION: Final = b"\x05\x02"
_WITHOUT_EFFECT: Final = ("storeKey", "doNotPrompt", "isInitiator")
"""Options of Java's module that files of Kafka have, and whose meaning the server gives by itself."""


@dataclass(frozen=True, slots=True)
class KeyTable:
    """A key table and the principal in it that a server or client uses."""

    path: str
    principal: str
    service: str
    _cache: str = field(default_factory=lambda: f"MEMORY:{uuid.uuid4().hex}", repr=False)

    @classmethod
    def of(cls, login: JaasEntry | None, service_name: str | None) -> KeyTable:
        """Return the key table of a login module.

        Raises:
            ConfigError: An option is missing or unknown, or the file is not a key table.
        """
        if login is None:
            raise ConfigError("sasl.jaas.config is missing")
        login.check_module(KRB5_LOGIN_MODULE)
        login.check_options("useKeyTab", "keyTab", "principal", "serviceName", *_WITHOUT_EFFECT)
        if not login.flag("useKeyTab"):
            raise ConfigError(f"{KRB5_LOGIN_MODULE} needs useKeyTab=true: other credentials are not supported")
        path = login.require("keyTab").removeprefix("FILE:")
        _check_key_table(path)
        service = login.options.get("serviceName") or service_name
        if not service:
            raise ConfigError("GSSAPI needs sasl.kerberos.service.name")
        return cls(path, login.require("principal"), service)

    @property
    def realm(self) -> str | None:
        """The realm of the principal, if it has one."""
        return self.principal.partition("@")[2] or None

    def accept(self) -> SecurityContext:
        """Begin a context as a server. The key table is read at each login, so that its keys can change."""
        return self._checked(lambda: self._begin("accept", {"keytab": f"FILE:{self.path}"}))

    def initiate(self, host: str) -> SecurityContext:
        """Begin a context as a client of the service on a host. This requests tickets, which it keeps in memory."""
        store = {"client_keytab": f"FILE:{self.path}", "ccache": self._cache}
        target = gssapi.Name(f"{self.service}@{host}", gssapi.NameType.hostbased_service)
        return self._checked(lambda: self._begin("initiate", store, name=target, mech=_KERBEROS, flags=_FLAGS))

    def _checked(self, begin: Callable[[], Any]) -> SecurityContext:
        """Begin a context. The library's errors name neither the principal nor the key table."""
        try:
            return _Context(_checked(begin))
        except GssError as error:
            raise GssError(f"{error} (principal {self.principal}, key table {self.path})") from error

    def _begin(self, usage: str, store: Any, **arguments: Any) -> Any:
        name = gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(name=name, usage=usage, mechs=[_KERBEROS], store=store)
        context: Any = gssapi.SecurityContext(creds=credentials, usage=usage, **arguments)
        # Errors of a step are raised at once, not by the next call.
        context.__DEFER_STEP_ERRORS__ = False
        return context


def gssapi_mechanism(login: JaasEntry | None, service_name: str | None, rules: tuple[str, ...]) -> GssapiMechanism:
    """Return the mechanism of a listener.

    Raises:
        ConfigError: The key table or a rule is invalid.
    """
    keys = KeyTable.of(login, service_name)
    return GssapiMechanism(keys.accept, LocalNames(keys.realm, rules))


def gssapi_login(login: JaasEntry | None, service_name: str | None) -> GssapiLogin:
    """Return the login of a node at other nodes.

    Raises:
        ConfigError: The key table is invalid.
    """
    return GssapiLogin(KeyTable.of(login, service_name).initiate)


_KERBEROS: Final = gssapi.OID.from_int_seq("1.2.840.113554.1.2.2")
_FLAGS: Final = [
    gssapi.RequirementFlag.mutual_authentication,
    gssapi.RequirementFlag.integrity,
    gssapi.RequirementFlag.out_of_sequence_detection,
]


class _Context:
    """A context of the library, whose errors are GssError."""

    def __init__(self, context: gssapi.SecurityContext) -> None:
        self._context = context

    @property
    def complete(self) -> bool:
        return _checked(lambda: bool(self._context.complete))

    @property
    def initiator(self) -> str:
        return _checked(lambda: str(self._context.initiator_name))

    def step(self, token: bytes | None) -> bytes | None:
        answer: bytes | None = _checked(lambda: self._context.step(token))
        return answer

    def wrap(self, message: bytes) -> bytes:
        return _checked(lambda: bytes(self._context.wrap(message, False).message))

    def unwrap(self, message: bytes) -> bytes:
        return _checked(lambda: bytes(self._context.unwrap(message).message))


def _checked(call: Callable[[], T]) -> T:
    try:
        return call()
    except GSSError as error:
        raise GssError(" ".join(str(error).split())) from error


def _check_key_table(path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            start = file.read(len(_KEY_TABLE_VERSION))
    except OSError as error:
        raise ConfigError(f"cannot read the key table {path}: {error.strerror}") from error
    if start != _KEY_TABLE_VERSION:
        raise ConfigError(f"{path} is not a key table of Kerberos")
