"""Readable reasons of failed TLS handshakes, from the texts of gRPC (BoringSSL) and of Python's ssl (OpenSSL). Pure.

The texts say "it" of the server, since the address stands before them, and name the settings that a failure points to.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

NO_CLIENT_CERTIFICATE: Final = (
    "it may require a certificate of the client, of an authority that it trusts (ssl.certificate.location and "
    "ssl.key.location; of servers ssl.keystore.location)"
)
_HANDSHAKE: Final = re.compile(r"SSL routines:[^:]*:(?P<reason>[A-Z0-9_]+)(?:: (?P<detail>[^:]*))?")
"""BoringSSL's reason, and for a certificate the result of its verification."""
_OTHER_HOST: Final = "Hostname Verification Check failed"
_NOT_VERIFIED: Final = "CERTIFICATE_VERIFY_FAILED"
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "RECORD_LAYER_FAILURE")
_CLIENT_ALERTS: Final = (
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "HANDSHAKE_FAILURE",
)
"""The ends of TLS alerts by which servers refuse a client's certificate, or its absence."""
_REMEDIES: Final = (
    (
        ("issuer", "self signed", "self-signed", "unable to verify the first certificate"),
        "ssl.ca.location (of servers ssl.truststore.location) must name a file with the authority that issued it",
    ),
    (
        ("mismatch", "not valid for"),
        "bootstrap.servers and advertised.listeners must name a host of the certificate",
    ),
    (("has expired",), "the server needs a new one, or this machine's clock is wrong"),
    (("not yet valid",), "this machine's clock or that of the issuer is wrong"),
)
"""Parts of the texts of failed verifications, and what mends the failure."""
_CUT_OFF: Final = re.compile(r"(Socket closed|reset by peer|Connection reset|Broken pipe|End of TCP stream)\W*$")
_NOT_CONNECTED: Final = "ailed to connect to"


def tls_reason(text: str) -> str | None:
    """Return the reason if gRPC's text of a failed connection tells of TLS, or None."""
    if _OTHER_HOST in text:
        return certificate_reason("Hostname mismatch, certificate is not valid for the address")
    found = _HANDSHAKE.search(text)
    return handshake_reason(found["reason"], found["detail"] or "") if found is not None else None


def ssl_reason(error: ssl.SSLError) -> str:
    """Return the reason of an error of Python's ssl."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return certificate_reason(error.verify_message)
    return handshake_reason(error.reason or str(error))


def is_unexplained(text: str) -> bool:
    """Return True if gRPC's text says that a connection was closed before it was open, but not why.

    So end connections with TLS to a server that refuses the client's certificate, and connections without TLS to a
    server that requires it.
    """
    return _NOT_CONNECTED in text and _CUT_OFF.search(text) is not None


def handshake_reason(reason: str, detail: str = "") -> str:
    """Return the reason for the name of a library's error; ``detail`` is the result of a failed verification."""
    if reason == _NOT_VERIFIED:
        return certificate_reason(detail)
    if reason in _NOT_TLS:
        return "it does not use TLS (security.protocol=plaintext or sasl_plaintext)"
    if reason.endswith(_CLIENT_ALERTS):
        return f"it refuses the TLS handshake, {reason}: {NO_CLIENT_CERTIFICATE}"
    return f"the TLS handshake failed: {reason}"


def certificate_reason(verification: str) -> str:
    """Return the reason for the text of a failed verification, with what mends it if that is known."""
    found = verification.rstrip(".")
    remedy = next((what for parts, what in _REMEDIES if any(part in found for part in parts)), "")
    return f"its certificate is not valid: {found}" + (f"; {remedy}" if remedy else "")
