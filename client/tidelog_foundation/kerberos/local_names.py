"""The rules that map Kerberos principals to names of users, with the language of Kafka's KerberosShortNamer.

A rule is ``DEFAULT``, which removes the default realm, or ``RULE:[n:format](match)s/from/to/g`` with an optional ``/L``
or ``/U``: it applies to principals of ``n`` components, whose realm is ``$0`` in the format and whose components are
``$1`` and ``$2``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError

KEY: Final = "sasl.kerberos.principal.to.local.rules"
_RULE: Final = re.compile(
    r"DEFAULT/?(?P<default_case>[LU])?"
    r"|RULE:\[(?P<components>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PRINCIPAL: Final = re.compile(r"([^/@]+)(?:/([^/@]+))?(?:@([^/@]+))?")
_PARAMETER: Final = re.compile(r"\$(\d*)")
_MAX_COMPONENTS: Final = 2


class NoLocalName(Exception):
    """A principal without a local name: it is malformed, or no rule applies to it."""


class LocalNames:
    """The rules of a server, of which the first that applies decides."""

    def __init__(self, default_realm: str | None, rules: Sequence[str] = ("DEFAULT",)) -> None:
        """Parse the rules.

        Raises:
            ConfigError: A rule is invalid.
        """
        self._rules = [_Rule.parse(default_realm, rule) for rule in rules or ("DEFAULT",)]

    def of(self, principal: str) -> str:
        """Return the local name of a principal such as ``alice@EXAMPLE.COM``.

        Raises:
            NoLocalName: The principal has none.
        """
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            raise NoLocalName(f"{principal!r} is not a Kerberos principal with a name, a host and a realm")
        name, host, realm = found.groups()
        if host is None and realm is None:
            return str(name)
        parameters = [realm or "", name, *([host] if host is not None else [])]
        for rule in self._rules:
            result = rule.apply(parameters)
            if result is not None:
                return result
        raise NoLocalName(f"no rule of {KEY} applies to {principal!r}")


@dataclass(frozen=True, slots=True)
class _Rule:
    text: str
    default_realm: str | None
    components: int = 0
    format: str | None = None
    """None for DEFAULT."""
    match: re.Pattern[str] | None = None
    substitution: tuple[re.Pattern[str], str, bool] | None = None
    case: str | None = None

    @classmethod
    def parse(cls, default_realm: str | None, text: str) -> _Rule:
        found = _RULE.fullmatch(text)
        if found is None:
            raise ConfigError(f'invalid rule "{text}" in configuration {KEY}')
        if found["components"] is None:
            return cls(text, default_realm, case=found["default_case"])
        components = int(found["components"])
        named = _PARAMETER.findall(found["format"])
        if not 0 < components <= _MAX_COMPONENTS or not all(n and int(n) <= components for n in named):
            raise ConfigError(f'invalid rule "{text}" in configuration {KEY}: its format names no component')
        try:
            match = None if found["match"] is None else re.compile(found["match"])
            pattern = None if found["from"] is None else re.compile(found["from"])
        except re.error as error:
            raise ConfigError(f'invalid rule "{text}" in configuration {KEY}: {error}') from error
        substitution = None
        if pattern is not None:
            substitution = (pattern, re.sub(r"\$(\d)", r"\\g<\1>", found["to"]), found["all"] is not None)
        return cls(text, default_realm, components, found["format"], match, substitution, found["case"])

    def apply(self, parameters: Sequence[str]) -> str | None:
        result = self._default(parameters) if self.format is None else self._formatted(self.format, parameters)
        if result is None:
            return None
        if "/" in result or "@" in result or not result:
            raise NoLocalName(f"the rule {self.text} of {KEY} gives {result!r}, which is no simple name")
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _default(self, parameters: Sequence[str]) -> str | None:
        return parameters[1] if parameters[0] == (self.default_realm or "") else None

    def _formatted(self, text: str, parameters: Sequence[str]) -> str | None:
        if len(parameters) - 1 != self.components:
            return None
        base = _PARAMETER.sub(lambda found: parameters[int(found[1])], text)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        if self.substitution is None:
            return base
        pattern, replacement, is_global = self.substitution
        return pattern.sub(replacement, base, count=0 if is_global else 1)
