"""The options of ``tidelog profile create`` for TLS and SASL, and the settings of clients that they give."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidelog_cli.output.printing import UsageError
from tidelog_cli.users.passwords import ask_password
from tidelog_foundation.config.providers import has_reference, resolve_settings
from tidelog_foundation.errors import ConfigError

_PANEL = "TLS and SASL"


class Protocol(StrEnum):
    """The values of security.protocol."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"

    @property
    def has_tls(self) -> bool:
        """True if connections are encrypted."""
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """True if clients authenticate with SASL."""
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """The options, each None if it is not given."""

    security: Annotated[
        Protocol | None,
        typer.Option("--security", help="The security.protocol of the cluster.", rich_help_panel=_PANEL),
    ] = None
    mechanism: Annotated[
        str | None,
        typer.Option("--sasl-mechanism", metavar="NAME", help="Default: SCRAM-SHA-512.", rich_help_panel=_PANEL),
    ] = None
    username: Annotated[
        str | None, typer.Option("--username", metavar="NAME", help="The user's name.", rich_help_panel=_PANEL)
    ] = None
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="The profile refers to this file, whose only line is the password. Without it: ask.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    password_variable: Annotated[
        str | None,
        typer.Option(
            "--password-env",
            metavar="NAME",
            help="The profile refers to this environment variable, which has the password.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    authorities: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="The trusted authorities, in PEM.", rich_help_panel=_PANEL),
    ] = None
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="The client's certificate.", rich_help_panel=_PANEL),
    ] = None
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="The private key of --certificate.", rich_help_panel=_PANEL),
    ] = None

    def settings(self, others: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of clients. At a terminal, ask for a password that neither they nor ``others`` have.

        Raises:
            UsageError: Options contradict each other, or there is no terminal.
            ConfigError: A file cannot be read, or the password cannot be kept.
        """
        protocol = self.security
        if (self.certificate is None) is not (self.key is None):
            raise UsageError("--certificate and --key belong together.")
        self._check_used("ssl or sasl_ssl", bool(protocol and protocol.has_tls), self._tls())
        self._check_used("sasl_ssl or sasl_plaintext", bool(protocol and protocol.has_sasl), self._sasl())
        if protocol is None:
            return {}
        found = {"security.protocol": protocol.value}
        found |= {key: _readable(path) for key, path in self._locations().items() if path is not None}
        return found | (self._login(others) if protocol.has_sasl else {})

    def _login(self, others: Mapping[str, str]) -> dict[str, str]:
        mechanism = self.mechanism or "SCRAM-SHA-512"
        login = {"sasl.mechanisms": mechanism}
        if mechanism not in _WITH_PASSWORD:
            self._check_used(", ".join(_WITH_PASSWORD), False, self._user(), "--sasl-mechanism")
            return login
        username = self.username or others.get("sasl.username")
        if not username:
            raise UsageError(f"{mechanism} logins need --username.")
        login["sasl.username"] = username
        if "sasl.password" not in others:
            login["sasl.password"] = self._password(username)
        return login

    def _password(self, username: str) -> str:
        """Return a reference to the password, or the password that the user typed."""
        if self.password_file is not None and self.password_variable is not None:
            raise UsageError("--password-file and --password-env exclude each other.")
        if self.password_variable is not None:
            return _reference("env", "", self.password_variable)
        if self.password_file is not None:
            return _reference_to_file(self.password_file.absolute())
        password = ask_password(username, ": pass --password-file FILE or --password-env NAME.")
        if has_reference(password):
            raise ConfigError("a password like a reference ${...} cannot be in a profile: pass --password-file FILE")
        return password

    def _locations(self) -> dict[str, Path | None]:
        return {
            "ssl.ca.location": self.authorities,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.key,
        }

    def _tls(self) -> dict[str, object]:
        return {"--ca": self.authorities, "--certificate": self.certificate, "--key": self.key}

    def _user(self) -> dict[str, object]:
        return {
            "--username": self.username,
            "--password-file": self.password_file,
            "--password-env": self.password_variable,
        }

    def _sasl(self) -> dict[str, object]:
        return {"--sasl-mechanism": self.mechanism, **self._user()}

    @staticmethod
    def _check_used(needed: str, is_used: bool, given: Mapping[str, object], option: str = "--security") -> None:
        unused = next((name for name, value in given.items() if value is not None), None)
        if unused is not None and not is_used:
            raise UsageError(f"{unused} needs {option} {needed}.")


def _readable(path: Path) -> str:
    absolute = path.absolute()
    if not os.access(absolute, os.R_OK):
        raise ConfigError(f"cannot read {absolute}")
    return str(absolute)


def _reference_to_file(path: Path) -> str:
    reference = _reference("dir", f"{path.parent}:", path.name)
    password = resolve_settings({"--password-file": reference})["--password-file"].strip()
    if not password or "\n" in password:
        raise ConfigError(f"{path} must have one line, the password, and not {len(password.splitlines())}")
    return reference


def _reference(provider: str, path: str, name: str) -> str:
    if any(character in f"{path}{name}" for character in "}\n") or ":" in f"{path[:-1]}{name}":
        raise ConfigError(f'a reference cannot name "{path}{name}", which contains ":", "}}" or the end of a line')
    return f"${{{provider}:{path}{name}}}"
