"""SASL mechanisms without I/O or clock, each with its server and its client, and the settings of servers."""

from tidelog_foundation.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Deferred,
    SaslClient,
    SaslContext,
    SaslLogin,
    SaslMechanism,
    SaslServer,
    Step,
)
