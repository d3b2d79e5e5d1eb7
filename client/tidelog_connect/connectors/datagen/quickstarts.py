"""Schemas that Datagen has by name (``quickstart``), with their key fields, named as in kafka-connect-datagen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

_COUNTRIES = ["DE", "FR", "GB", "IN", "JP", "US"]
_FIRST_MS, _LAST_MS = 1735689600000, 1767225599000


def _of(kind: str, **arguments: object) -> dict[str, object]:
    return {"type": kind, "arg.properties": arguments}


def _number(low: float, high: float, kind: str = "int") -> dict[str, object]:
    return _of(kind, range={"min": low, "max": high})


def _count(start: int = 0) -> dict[str, object]:
    return _of("long", iteration={"start": start, "step": 1})


def _text(pattern: str) -> dict[str, object]:
    return _of("string", regex=pattern)


def _one_of(*values: str) -> dict[str, object]:
    return _of("string", options=list(values))


def _time() -> dict[str, object]:
    return _of("long", range={"min": _FIRST_MS, "max": _LAST_MS})


def _record(name: str, fields: Mapping[str, object]) -> dict[str, Any]:
    parts = [{"name": each, "type": schema} for each, schema in fields.items()]
    return {"type": "record", "name": name, "namespace": "datagen", "fields": parts}


def _addresses() -> dict[str, Any]:
    fields = {"city": _text("City_[0-9]{2}"), "state": _text("State_[0-9]{2}"), "zipcode": _number(10000, 99999)}
    return _record("address", fields)


QUICKSTARTS: Mapping[str, tuple[dict[str, Any], str]] = MappingProxyType(
    {
        "users": (
            _record(
                "users",
                {
                    "registertime": _time(),
                    "userid": _text("User_[1-9]"),
                    "regionid": _text("Region_[1-9]"),
                    "gender": _one_of("MALE", "FEMALE", "OTHER"),
                },
            ),
            "userid",
        ),
        "pageviews": (
            _record(
                "pageviews", {"viewtime": _count(1), "userid": _text("User_[1-9]"), "pageid": _text("Page_[0-9]{2}")}
            ),
            "viewtime",
        ),
        "orders": (
            _record(
                "orders",
                {
                    "ordertime": _time(),
                    "orderid": _count(),
                    "itemid": _text("Item_[1-9][0-9]{0,2}"),
                    "orderunits": _number(0.1, 10, "double"),
                    "address": _addresses(),
                },
            ),
            "orderid",
        ),
        "ratings": (
            _record(
                "ratings",
                {
                    "rating_id": _count(1),
                    "user_id": _number(1, 20),
                    "stars": _number(1, 6),
                    "rating_time": _time(),
                    "channel": _one_of("ios", "android", "web", "iOS-test"),
                    "message": _one_of("great", "as expected", "too late", "never again"),
                },
            ),
            "rating_id",
        ),
        "stock_trades": (
            _record(
                "stock_trades",
                {
                    "side": _one_of("BUY", "SELL"),
                    "quantity": _number(1, 5000),
                    "symbol": _text("[A-F][A-Z]{2}"),
                    "price": _number(5, 1000),
                    "account": _text("[A-Z]{3}[0-9]{3}"),
                    "userid": _text("User_[1-9]"),
                },
            ),
            "symbol",
        ),
        "inventory": (
            _record("inventory", {"id": _count(), "quantity": _number(1, 100), "productid": _number(1, 1000)}),
            "id",
        ),
        "product": (
            _record(
                "product",
                {
                    "id": _count(),
                    "name": _text("Product_[0-9]{3}"),
                    "description": _text("[a-z]{8} [a-z]{6}"),
                    "price": _number(1, 500, "double"),
                },
            ),
            "id",
        ),
        "purchases": (
            _record(
                "purchases",
                {
                    "id": _count(),
                    "item_type": _one_of("book", "phone", "shoes", "tea"),
                    "quantity": _number(1, 10),
                    "price_per_unit": _number(1, 100, "double"),
                },
            ),
            "id",
        ),
        "transactions": (
            _record(
                "transactions",
                {
                    "transaction_id": _count(1),
                    "card_id": _number(1, 500, "long"),
                    "user_id": _text("User_[1-9]"),
                    "purchase_id": _number(0, 10000, "long"),
                    "store_id": _number(1, 8),
                    "country": _one_of(*_COUNTRIES),
                },
            ),
            "transaction_id",
        ),
    }
)
"""The schema and the key field of each quickstart."""


def names() -> Sequence[str]:
    """Return the names of all quickstarts."""
    return sorted(QUICKSTARTS)
