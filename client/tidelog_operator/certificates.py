"""The key and certificates in a TLS Secret, in both of its layouts. Pure.

cert-manager and ``kubectl create secret tls`` write ``tls.key`` and ``tls.crt``. A process reads one file with both,
``tls-combined.pem``, which cert-manager adds if it is asked for ``CombinedPEM``. For a Secret without that file, the
operator makes another one that has it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509

CA: Final = "ca.crt"
COMBINED: Final = "tls-combined.pem"
_KEY, _CHAIN = "tls.key", "tls.crt"
_BLOCK: Final = re.compile(r"-----BEGIN (?P<kind>[A-Z0-9 ]+)-----.*?-----END (?P=kind)-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key with its certificate chain, and the trusted authorities, all in PEM.

    ``is_combined`` tells whether its Secret has the file that processes read.
    """

    ca: str
    key: str = field(repr=False)
    chain: str
    is_combined: bool

    @property
    def combined(self) -> str:
        """The key, then the chain: the file that processes read."""
        return f"{self.key}\n{self.chain}\n"


def key_pair(values: Mapping[str, str]) -> KeyPair | None:
    """Return the key and certificates of a Secret's values, or None if it has neither layout."""
    is_combined = bool(values.get(COMBINED))
    text = values[COMBINED] if is_combined else f"{values.get(_KEY, '')}\n{values.get(_CHAIN, '')}"
    blocks = [(match["kind"], match[0]) for match in _BLOCK.finditer(text)]
    keys = [block for kind, block in blocks if kind.endswith("PRIVATE KEY")]
    chain = [block for kind, block in blocks if kind == "CERTIFICATE"]
    if len(keys) != 1 or not chain or not values.get(CA):
        return None
    return KeyPair(values[CA], keys[0], "\n".join(chain), is_combined)


def missing_names(pair: KeyPair, names: Collection[str]) -> list[str]:
    """Return the DNS names for which the certificate is not valid. A wildcard needs two labels behind it.

    Raises:
        ValueError: it cannot be read.
    """
    (certificate, *_) = x509.load_pem_x509_certificates(pair.chain.encode())
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return list(names)
    known = set(found.get_values_for_type(x509.DNSName))
    return [name for name in names if name not in known and _wildcard(name) not in known]


def _wildcard(name: str) -> str | None:
    behind = name.partition(".")[2]
    return f"*.{behind}" if "." in behind else None
