"""The metrics of certificates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.security.certificate_store import CertificateStore

CERTIFICATE_EXPIRY: Final = Metric(
    "tidelog_certificate_expiry_timestamp_seconds",
    Kind.GAUGE,
    "The time at which the certificate of a listener, or of connections to controllers, expires.",
    unit="seconds",
    labels=("listener",),
)
METRICS: Final = (CERTIFICATE_EXPIRY,)


def certificate_families(stores: Iterable[CertificateStore]) -> Iterable[Family]:
    """Return the expiry of the certificates in use."""
    yield CERTIFICATE_EXPIRY.of({(store.name,): store.current.key.expires.timestamp() for store in stores})
