"""Client quotas: set, described by every kind of filter, replaced and removed, and every refusal (KIP-546)."""

from __future__ import annotations

from compat.wire.case import Case, Family

from tidelog_node.kafka.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlterationData,
    QuotaComponent,
    QuotaEntityData,
    QuotaOpData,
)

EXACT, DEFAULT, ANY = 0, 1, 2
_Entity = dict[str, str | None]
_ALICE: _Entity = {"user": "alice"}
_BOTH: _Entity = {"user": "alice", "client-id": None}
_ADDRESS: _Entity = {"ip": "10.0.0.1"}
_RATE = QuotaOpData("producer_byte_rate", 1_000.0)


def _alter(name: str, entity: _Entity, *ops: QuotaOpData, validate_only: bool = False) -> Case:
    parts = [QuotaEntityData(kind, each) for kind, each in entity.items()]
    return Case(f"quotas: {name}", AlterClientQuotasRequest([QuotaAlterationData(parts, list(ops))], validate_only))


def _describe(name: str, *components: tuple[str, int, str | None], strict: bool = False) -> Case:
    request = DescribeClientQuotasRequest([QuotaComponent(*each) for each in components], strict)
    return Case(f"quotas: describe {name}", request, settles=True)


def _set(key: str, value: float) -> QuotaOpData:
    return QuotaOpData(key, value)


_CASES = (
    _describe("nothing"),
    Case("quotas: alter none", AlterClientQuotasRequest([])),
    _alter("no change", _ALICE),
    _alter("set", _ALICE, _RATE, _set("request_percentage", 12.5)),
    _describe("a user", ("user", EXACT, "alice"), strict=True),
    _alter("replace", _ALICE, _set("producer_byte_rate", 2_000.0)),
    _alter("validate", _ALICE, _set("producer_byte_rate", 3_000.0), validate_only=True),
    _alter("remove one that is not set", _ALICE, QuotaOpData("consumer_byte_rate", 0.0, True)),
    _describe("after the changes", ("user", EXACT, "alice"), strict=True),
    _alter("set of a user with the default client id", _BOTH, _set("consumer_byte_rate", 5.0)),
    _describe("both types", ("user", EXACT, "alice"), ("client-id", DEFAULT, None)),
    _describe("any client id", ("client-id", ANY, None)),
    _describe("any user alone", ("user", ANY, None), strict=True),
    _describe("a strict filter of nothing", strict=True),
    _describe("an unknown user", ("user", EXACT, "bob")),
    _alter("set of an address", _ADDRESS, _set("connection_creation_rate", 7.0)),
    _describe("an address", ("ip", EXACT, "10.0.0.1")),
    _describe("the default address", ("ip", DEFAULT, None)),
    *(
        _alter(f"refuse {key} {value}", _ALICE, _set(key, value))
        for key, value in (
            ("producer_byte_rate", 0.0),
            ("producer_byte_rate", -1.0),
            ("producer_byte_rate", 1.5),
            ("producer_byte_rate", 1e19),
            ("connection_creation_rate", 1.0),
            ("unknown", 1.0),
        )
    ),
    _alter("refuse a key of users for an address", _ADDRESS, _RATE),
    _alter("refuse a large value of an address", _ADDRESS, _set("connection_creation_rate", 2.0**31)),
    _alter("refuse no entity", {}, _RATE),
    _alter("refuse an unknown type", {"group": "g"}, _RATE),
    _alter("refuse an empty name", {"user": ""}, _RATE),
    _alter("refuse an address with a user", {"ip": "10.0.0.1", "user": "a"}, _RATE),
    _alter("refuse a bad address", {"ip": "no such host"}, _set("connection_creation_rate", 1.0)),
    _alter("refuse a key twice", {"user": "twice"}, _RATE, _RATE),
    _describe("an empty type", ("", ANY, None)),
    _describe("an unknown type", ("group", ANY, None)),
    _describe("a type twice", ("user", ANY, None), ("user", DEFAULT, None)),
    _describe("an address and a user", ("ip", ANY, None), ("user", ANY, None)),
    _describe("exactly null", ("user", EXACT, None)),
    _describe("the default with a name", ("user", DEFAULT, "a")),
    _describe("any with a name", ("user", ANY, "a")),
    _describe("match type 3", ("user", 3, None)),
    _alter("remove", _ALICE, *(QuotaOpData(key, 0.0, True) for key in ("producer_byte_rate", "request_percentage"))),
    _alter("remove of both", _BOTH, QuotaOpData("consumer_byte_rate", 0.0, True)),
    _alter("remove of an address", _ADDRESS, QuotaOpData("connection_creation_rate", 0.0, True)),
    _describe("what is left"),
)

FAMILIES = (Family("quotas", _CASES),)
