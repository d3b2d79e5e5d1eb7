"""The limit that applies to a client, against a search through Kafka's order, and the bounds of the tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.quotas.limits import AddressLimits, ClientLimits, SharedLimit
from tidelog_foundation.quotas.meters import Meters
from tidelog_foundation.quotas.rate import Windows
from tidelog_foundation.quotas.recency import IDLE_MS, RecentClients
from tidelog_foundation.requests.quotas import entity_of

RATE = "producer_byte_rate"
users, clients = st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y", None])
entities = st.one_of(
    st.builds(lambda u: {"user": u}, users),
    st.builds(lambda c: {"client-id": c}, clients),
    st.builds(lambda u, c: {"user": u, "client-id": c}, users, clients),
)


def limits_of(*quotas):
    return ClientLimits({entity_of(names): {RATE: limit} for names, limit in quotas}, RATE)


def kafkas_choice(quotas, user, client_id):
    """The order of precedence in Kafka's documentation, one entity after the other."""
    order = [
        ({"user": user, "client-id": client_id}, (user, client_id)),
        ({"user": user, "client-id": None}, (user, client_id)),
        ({"user": user}, (user, "")),
        ({"user": None, "client-id": client_id}, (user, client_id)),
        ({"user": None, "client-id": None}, (user, client_id)),
        ({"user": None}, (user, "")),
        ({"client-id": client_id}, ("", client_id)),
        ({"client-id": None}, ("", client_id)),
    ]
    by_entity = {entity_of(names): limit for names, limit in quotas}
    for names, shared in order:
        if entity_of(names) in by_entity and (client_id or "client-id" not in names):
            return SharedLimit(by_entity[entity_of(names)], *shared)
    return None


@given(
    st.lists(st.tuples(entities, st.integers(1, 100)), max_size=8),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["x", "y", "z", ""]),
)
def test_the_most_specific_entity_limits_a_client(quotas, user, client_id) -> None:
    assert limits_of(*quotas).limit_of(user, client_id) == kafkas_choice(quotas, user, client_id)


def test_limits_of_addresses_and_other_quotas_do_not_limit_clients() -> None:
    quotas = {
        entity_of({"ip": None}): {"connection_creation_rate": 5},
        entity_of({"ip": "10.0.0.1"}): {"connection_creation_rate": 7},
        entity_of({"user": None}): {"consumer_byte_rate": 3},
    }
    assert not ClientLimits(quotas, RATE)
    addresses = AddressLimits(quotas, "connection_creation_rate")
    assert (addresses.limit_of("10.0.0.1"), addresses.limit_of("10.0.0.2")) == (7, 5)
    assert not AddressLimits({}, "connection_creation_rate")


def test_clients_of_one_user_share_its_limit_and_pairs_have_their_own() -> None:
    meters = Meters(Windows())
    meters.change_limits(limits_of(({"user": "a"}, 10), ({"client-id": None}, 20)))
    assert meters.meter_of("a", "x", 0) is meters.meter_of("a", "y", 0)
    assert meters.meter_of("b", "x", 0) is meters.meter_of("c", "x", 0)
    assert meters.meter_of("b", "x", 0) is not meters.meter_of("b", "y", 0)
    assert meters.meter_of("b", "", 0) is None


def test_a_changed_limit_applies_to_what_was_measured() -> None:
    meters = Meters(Windows())
    meters.change_limits(limits_of(({"user": "a"}, 1_000)))
    meter = meters.meter_of("a", "x", 0)
    assert meter is not None
    assert meter.record(8_000, 0) == 0
    meters.change_limits(limits_of(({"user": "a"}, 400)))
    lower = meters.meter_of("a", "x", 0)
    assert lower is meter
    assert lower.record(0, 0) == 10_000
    assert meters.delay_ms("a", "x", 4_000) == 6_000
    meters.change_limits(limits_of())
    assert (meters.delay_ms("a", "x", 4_000), len(meters)) == (0, 0)


def test_a_value_above_the_limit_is_not_recorded_when_it_is_only_tried() -> None:
    meters = Meters(Windows())
    meters.change_limits(limits_of(({"user": "a"}, 100)))
    meter = meters.meter_of("a", "x", 0)
    assert meter is not None
    assert meter.largest_value == 1_000
    assert meter.try_record(1_001, 0) > 0
    assert meter.rate(0) == 0
    assert meter.try_record(1_000, 0) == 0


def test_a_delay_has_an_upper_bound_if_one_is_set() -> None:
    meters = Meters(Windows(), longest_ms=1_000)
    meters.change_limits(limits_of(({"user": "a"}, 1)))
    meter = meters.meter_of("a", "x", 0)
    assert meter is not None
    assert meter.record(10**6, 0) == 1_000


def test_invented_client_ids_do_not_enlarge_the_table_and_share_one_meter() -> None:
    meters = Meters(Windows(), max_clients=100)
    meters.change_limits(limits_of(({"client-id": None}, 10)))
    honest = meters.meter_of("a", "honest", 0)
    made = {id(meters.meter_of("a", f"invented-{i}", 1)) for i in range(5_000)}
    assert len(meters) == 100
    assert len(made) == 100, "99 of their own and one that is shared"
    assert meters.meter_of("a", "honest", 2) is honest, "an active client keeps what was measured"


def test_idle_clients_are_forgotten_and_make_room() -> None:
    table: RecentClients[str, list[int]] = RecentClients(11_000, limit=2)
    first = table.use("a", 0, list)
    table.use("b", 5_000, list)
    assert table.use("a", 10_000, list) is first
    table.use("c", 17_000, list)
    assert (table.find("b"), table.find("a")) == (None, first)
    table.use("d", 17_000 + IDLE_MS, list)
    assert (table.find("a"), table.find("c"), len(table)) == (None, None, 1)


@pytest.mark.parametrize("user", ["a", "Ümlaut, mit=Zeichen"])
def test_names_are_compared_as_they_are(user) -> None:
    assert limits_of(({"user": user}, 5)).limit_of(user, "x") == SharedLimit(5, user, "")
