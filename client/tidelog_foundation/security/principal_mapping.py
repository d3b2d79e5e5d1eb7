"""The rules of ssl.principal.mapping.rules, from the distinguished name of a certificate to a name (KIP-371)."""

from __future__ import annotations

import re
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for
from tidelog_foundation.security.principal import USER, Principal

_RULE: Final = re.compile(
    r"(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_GAP: Final = re.compile(r"[\s,]*")
_REFERENCE: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None maps a name to itself."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = self.pattern.sub(self._expand, name)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped

    def _expand(self, match: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda reference: _value_of(reference, match), self.replacement)


class PrincipalMapping:
    """The rules in ``RULE:pattern/replacement/[LU],...,DEFAULT``. The first one that matches a whole name applies.

    ``$1`` in a replacement is the first group of the pattern, ``L`` and ``U`` convert to lower and upper case. Patterns
    and escapes are Java's as far as Python has the same, as in Kafka's SslPrincipalMapper.
    """

    def __init__(self, rules: str) -> None:
        """Parse the rules.

        Raises:
            ConfigError: A rule is malformed; the message contains it.
        """
        self._rules: list[_Rule] = []
        position = _end_of_gap(rules, 0)
        while position < len(rules):
            found = _RULE.match(rules, position)
            if found is None:
                raise ConfigError(
                    f'invalid rule at "{rules[position:]}": must be DEFAULT, or RULE:pattern/replacement/ with L or U '
                    f"at the end for lower or upper case"
                )
            self._rules.append(_rule(found))
            position = _end_of_gap(rules, found.end())

    def principal_of(self, distinguished_name: str) -> Principal:
        """Return the principal of a certificate with this subject (Kafka's DefaultKafkaPrincipalBuilder).

        Raises:
            TidelogError: SASL_AUTHENTICATION_FAILED: no rule matches the name, which the text contains.
        """
        name = self.name_of(distinguished_name)
        if name is None:
            text = f"no rule of ssl.principal.mapping.rules matches the certificate of {distinguished_name}"
            raise error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
        return Principal(USER, name)

    def name_of(self, distinguished_name: str) -> str | None:
        """Return the name of the principal, or None if no rule matches."""
        mapped = (rule.apply(distinguished_name) for rule in self._rules)
        return next((name for name in mapped if name is not None), None)


def _end_of_gap(rules: str, position: int) -> int:
    gap = _GAP.match(rules, position)
    assert gap is not None, "it matches nothing, too"
    return gap.end()


def _rule(found: re.Match[str]) -> _Rule:
    if found["default"]:
        return _Rule(None)
    try:
        # Java's \w and \d are ASCII's.
        pattern = re.compile(found["pattern"], re.ASCII)
    except re.error as error:
        raise ConfigError(f'invalid pattern "{found["pattern"]}" of a rule: {error}') from error
    return _Rule(pattern, found["replacement"], found["case"])


def _value_of(reference: re.Match[str], match: re.Match[str]) -> str:
    """Return an escaped character, or the group with the longest number that exists, followed by the other digits.

    A reference to a group that does not exist is literal text.
    """
    if reference["literal"] is not None:
        return reference["literal"]
    digits = reference["group"]
    groups = match.re.groups
    used = next((n for n in range(len(digits), 0, -1) if int(digits[:n]) <= groups), 0)
    return (match[int(digits[:used])] or "") + digits[used:] if used else f"${digits}"
