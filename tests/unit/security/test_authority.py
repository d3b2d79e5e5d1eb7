"""The authority of clusters on one machine: its file, and the modes of the files with keys."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.authority import Authority


def test_authority_of_a_file_is_the_one_that_created_it(tmp_path: Path) -> None:
    path = tmp_path / "ca-key.pem"
    created = Authority.open(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    opened = Authority.open(path)
    assert opened.pem == created.pem
    opened.issue("alice").certificate.verify_directly_issued_by(created.certificate)


@pytest.mark.parametrize("content", ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_file_that_is_not_one_of_an_authority_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ca-key.pem"
    path.write_text(content)
    with pytest.raises(ConfigError, match="has no key and certificate of an authority"):
        Authority.open(path)
    assert path.read_text() == content


def test_store_with_a_key_is_private_even_if_the_file_was_not(tmp_path: Path) -> None:
    path = tmp_path / "alice.pem"
    path.write_text("")
    path.chmod(0o644)
    issued = Authority().issue("alice", hosts=["node1.example", "10.0.0.1"]).write_pem(path)
    assert stat.S_IMODE(issued.stat().st_mode) == 0o600
    certificate = x509.load_pem_x509_certificate(issued.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node1.example"]


def test_certificate_without_a_host_is_for_clients_alone() -> None:
    for hosts, usages in (
        ((), {ExtendedKeyUsageOID.CLIENT_AUTH}),
        (["node1.example"], {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}),
    ):
        certificate = Authority().issue("node1.example", hosts).certificate
        assert set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == usages
