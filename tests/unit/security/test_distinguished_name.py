"""Distinguished names as ``X500Principal.getName()`` of Java writes them."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from tidelog_foundation.security.distinguished_name import distinguished_name


def name(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


def test_distinguished_name_begins_with_the_most_specific_part() -> None:
    subject = name(
        (NameOID.COUNTRY_NAME, "CZ"),
        (NameOID.DOMAIN_COMPONENT, "geodis"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "ITZ"),
        (NameOID.COMMON_NAME, "Duke"),
    )
    assert distinguished_name(subject) == "CN=Duke,OU=ITZ,DC=geodis,C=CZ"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Tkac, Adam", "Tkac\\, Adam"),
        (" a b ", "\\ a b\\ "),
        ("#a=b+c", "\\#a\\=b\\+c"),
        ('"<>;\\', '\\"\\<\\>\\;\\\\'),
        ("Jürgen", "Jürgen"),
        ("  ", "\\ \\ "),
    ],
)
def test_distinguished_name_escapes_what_would_end_a_value(value: str, text: str) -> None:
    assert distinguished_name(name((NameOID.COMMON_NAME, value))) == f"CN={text}"


@pytest.mark.parametrize("size", [4, 200, 40_000])
def test_distinguished_name_has_the_encoding_of_attributes_without_a_keyword(size: int) -> None:
    mail = x509.NameAttribute(NameOID.EMAIL_ADDRESS, "m" * size, _ASN1Type.IA5String)
    length = f"{size:02x}" if size < 128 else f"81{size:02x}" if size < 256 else f"82{size:04x}"
    expected = f"1.2.840.113549.1.9.1=#16{length}" + "6d" * size
    assert distinguished_name(x509.Name([mail])) == expected


def test_distinguished_name_joins_the_attributes_of_one_part() -> None:
    parts = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "b")]
    )
    assert distinguished_name(x509.Name([parts])) in ("CN=a+UID=b", "UID=b+CN=a")
