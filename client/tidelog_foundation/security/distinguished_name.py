"""The subject of a certificate as text, exactly as Java's ``X500Principal.getName()`` writes it (RFC 2253)."""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

_KEYWORDS: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
"""The attributes that RFC 2253 names. All others appear as their object identifier and the value's encoding."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, the most specific part first."""
    return distinguished_name(x509.load_der_x509_certificate(certificate).subject)


def distinguished_name(name: x509.Name) -> str:
    """Return a name in RFC 2253's form."""
    return ",".join("+".join(map(_attribute, part)) for part in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is None or not isinstance(attribute.value, str):
        return f"{keyword or attribute.oid.dotted_string}=#{_encoding(attribute).hex()}"
    return f"{keyword}={_escape(attribute.value)}"


def _escape(value: str) -> str:
    text = "".join("\\" + c if c in _ESCAPED else "\\00" if c == "\0" else c for c in value)
    begin = len(text) - len(text.lstrip(" "))
    end = len(text) - len(text.rstrip(" ")) if begin < len(text) else 0
    return "\\ " * begin + text[begin : len(text) - end] + "\\ " * end


def _encoding(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Return the DER encoding of an attribute's value, the last of the nested elements of a name."""
    names = _content(x509.Name([attribute]).public_bytes())
    identifier_and_value = _content(_content(names))
    return identifier_and_value[2 + identifier_and_value[1] :]


def _content(element: bytes) -> bytes:
    """Return the content of a DER element."""
    length = element[1]
    return element[2 + (length & 0x7F) :] if length & 0x80 else element[2:]
