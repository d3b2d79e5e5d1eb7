"""Key material from every kind of store, its errors, and its replacement while a server runs."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from certificates import Authority

from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.metrics import CERTIFICATE_EXPIRY, certificate_families
from tidelog_foundation.security.ssl_settings import SslSettings, with_listener_settings

CA = Authority()
ISSUED = CA.issue("server")
NOW = datetime.now(UTC)
SECRET = "canary-4711"


def store_of(**settings: object) -> CertificateStore:
    given = {key.replace("_", "."): str(value) for key, value in settings.items()}
    return CertificateStore("SSL", parse_config(SslSettings, given))


def pem(path: Path, **settings: object) -> CertificateStore:
    return store_of(ssl_keystore_type="PEM", ssl_keystore_location=path, **settings)


def in_one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def test_store_loads_the_same_certificate_from_every_kind_of_key_store(tmp_path: Path) -> None:
    keyed = ISSUED.write_pem(tmp_path / "keyed.pem", SECRET)
    p12 = ISSUED.write_pkcs12(tmp_path / "a.p12", SECRET)
    inline = {"ssl_keystore_type": "PEM", "ssl_keystore_certificate_chain": in_one_line(ISSUED.certificate_pem)}
    stores = [
        pem(ISSUED.write_pem(tmp_path / "plain.pem")),
        pem(keyed, ssl_key_password=SECRET),
        store_of(ssl_keystore_type="PKCS12", ssl_keystore_location=p12, ssl_keystore_password=SECRET),
        store_of(ssl_keystore_key=in_one_line(ISSUED.key_pem()), **inline),
        store_of(ssl_keystore_key=ISSUED.key_pem(SECRET), ssl_key_password=SECRET, **inline),
    ]
    for store in stores:
        assert store.current.key.subject == "CN=server"
        assert store.current.key.key_pem().decode() == ISSUED.key_pem()


def test_store_loads_authorities_from_a_file_and_from_the_settings(tmp_path: Path) -> None:
    key = ISSUED.write_pem(tmp_path / "key.pem")
    by_file = pem(key, ssl_truststore_type="PEM", ssl_truststore_location=CA.write_pem(tmp_path / "ca.pem"))
    inline = pem(key, ssl_truststore_type="PEM", ssl_truststore_certificates=in_one_line(CA.pem))
    p12 = ISSUED.write_pkcs12(tmp_path / "a.p12", SECRET)
    packed = pem(key, ssl_truststore_type="PKCS12", ssl_truststore_location=p12, ssl_truststore_password=SECRET)
    assert [s.current.authorities for s in (by_file, inline, packed)] == [CA.pem.encode()] * 3


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "TLS needs ssl.keystore.location"),
        ({"ssl.keystore.location": "{key}"}, "ssl.keystore.type is JKS, which is not supported"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{none}"}, "cannot read ssl.keystore.location"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{ca}"}, "has no private key in PEM"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{only key}"}, "has no certificate in PEM"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{other}"}, "is not the key of the certificate"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{keyed}", "ssl.key.password": SECRET}, "cannot be rea"),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "{p12}"}, "cannot be read"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "{key}", "ssl.keystore.password": SECRET},
            "ssl.keystore.password is for PKCS12",
        ),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": SECRET}, "must be set together"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "{key}", "ssl.client.auth": "required"},
            "needs ssl.truststore.location",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "{key}", "ssl.cipher.suites": "TLS_X"},
            'the suite "TLS_X" is not supported',
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "{key}",
                "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
            },
            "name all three or none",
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "{key}",
                "ssl.enabled.protocols": "TLSv1.3",
                "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            },
            "no suite of ssl.enabled.protocols TLSv1.3",
        ),
    ],
)
def test_store_refuses_what_cannot_work_and_says_why_without_the_secret(
    tmp_path: Path, settings: dict[str, str], text: str
) -> None:
    files = {
        "{key}": ISSUED.write_pem(tmp_path / "key.pem"),
        "{keyed}": ISSUED.write_pem(tmp_path / "keyed.pem", "another"),
        "{none}": tmp_path / "none.pem",
        "{ca}": CA.write_pem(tmp_path / "ca.pem"),
        "{only key}": tmp_path / "only.pem",
        "{other}": tmp_path / "other.pem",
        "{p12}": ISSUED.write_pkcs12(tmp_path / "a.p12", "another"),
    }
    files["{only key}"].write_text(ISSUED.key_pem())
    files["{other}"].write_text(ISSUED.key_pem() + CA.issue("other").certificate_pem)
    given = {key: str(files.get(value, value)) for key, value in settings.items()}
    with pytest.raises(ConfigError, match="listener SSL: ") as caught:
        CertificateStore("SSL", parse_config(SslSettings, given))
    assert text in caught.value.message
    assert SECRET not in str(caught.value)


def test_settings_and_material_show_no_secret(tmp_path: Path) -> None:
    store = pem(ISSUED.write_pem(tmp_path / "keyed.pem", SECRET), ssl_key_password=SECRET)
    shown = repr(store.settings) + repr(store.current) + repr(store.current.key)
    assert SECRET not in shown
    assert "PRIVATE" not in shown


def test_cipher_suites_have_the_names_of_java(tmp_path: Path) -> None:
    suites = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    context = pem(ISSUED.write_pem(tmp_path / "key.pem"), ssl_cipher_suites=suites).current.server
    names = [suite["name"] for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3"]
    assert names == ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"]
    assert context.maximum_version.name == "TLSv1_2"


def test_changed_certificate_replaces_the_old_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = ISSUED.write_pem(tmp_path / "key.pem")
    store = pem(path)
    before = store.current
    store.refresh(NOW)
    assert store.current is before
    CA.issue("renewed").write_pem(path)
    with caplog.at_level(logging.INFO):
        store.refresh(NOW)
    assert store.current.key.subject == "CN=renewed"
    assert "Listener SSL uses the new certificate of CN=renewed" in caplog.text


@pytest.mark.parametrize("fault", ["another key", "half a file", "no file", "expired"])
def test_invalid_change_is_refused_once_and_the_old_certificate_stays(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = ISSUED.write_pem(tmp_path / "key.pem")
    store = pem(path)
    before = store.current
    if fault == "another key":
        path.write_text(CA.issue("new").key_pem() + CA.issue("new").certificate_pem)
    elif fault == "half a file":
        path.write_text(path.read_text()[:300])
    elif fault == "no file":
        path.unlink()
    else:
        CA.issue("old", valid_for=timedelta(days=-1)).write_pem(path)
    store.refresh(NOW)
    store.refresh(NOW)
    assert store.current is before
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    CA.issue("repaired").write_pem(path)
    store.refresh(NOW)
    assert store.current.key.subject == "CN=repaired"


def test_certificate_that_expires_within_30_days_is_reported_daily(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = pem(CA.issue("brief", valid_for=timedelta(days=20)).write_pem(tmp_path / "key.pem"))
    for hours in (0, 1, 23, 25, 26):
        store.refresh(NOW + timedelta(hours=hours))
    assert [r.getMessage()[:48] for r in caplog.records] == ["The certificate of CN=brief of listener SSL expi"] * 2
    caplog.clear()
    store.refresh(NOW + timedelta(days=21))
    assert "has expired at" in caplog.text


def test_prefixed_key_replaces_that_of_the_one_listener_of_a_controller() -> None:
    given = {"ssl.client.auth": "none", "listener.name.grpc_ssl.ssl.client.auth": "required", "node.id": "1"}
    assert with_listener_settings(given, "GRPC_SSL") == {"ssl.client.auth": "required", "node.id": "1"}
    with pytest.raises(ConfigError, match="names none of the listeners: grpc"):
        with_listener_settings(given, "GRPC")


def test_store_makes_no_contexts_for_grpc(tmp_path: Path) -> None:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(ISSUED.write_pem(tmp_path / "key.pem")),
        "ssl.cipher.suites": "NO_SUCH_SUITE",
    }
    parsed = parse_config(SslSettings, settings)
    with pytest.raises(ConfigError, match="NO_SUCH_SUITE"):
        CertificateStore("SSL", parsed)
    assert CertificateStore("GRPC", parsed, has_contexts=False).current.key.subject == "CN=server"


def test_expiry_of_the_certificate_in_use_is_measured(tmp_path: Path) -> None:
    path = CA.issue("node").write_pem(tmp_path / "node.pem")
    store = pem(path)
    [family] = certificate_families([store])
    assert family.metric is CERTIFICATE_EXPIRY
    assert family.values == {(store.name,): store.current.key.expires.timestamp()}
    CA.issue("node", valid_for=timedelta(days=2)).write_pem(path)
    store.refresh(datetime.now(UTC))
    [changed] = certificate_families([store])
    assert 0 < changed.values[store.name,] - time.time() <= 2 * 86_400
