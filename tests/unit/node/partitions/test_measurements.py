"""The number of topics with metrics of their own is limited, and what the others count is not lost."""

from __future__ import annotations

from tidelog_node.partitions.measurements import OTHER_TOPICS, Measurements


def test_topics_beyond_the_limit_share_their_counts() -> None:
    measured = Measurements(max_topics=2)
    for topic in ("a", "b", "c", "d", "a"):
        measured.traffic_of(topic).bytes_in += 10
    assert {topic: traffic.bytes_in for topic, traffic in measured} == {"a": 20, "b": 10}
    assert measured.other.bytes_in == 20
    assert [measured.label_of(topic) for topic in "abc"] == ["a", "b", OTHER_TOPICS]


def test_topic_that_is_hosted_no_more_gives_its_place_to_another() -> None:
    measured = Measurements(max_topics=1)
    measured.traffic_of("a").bytes_in += 10
    measured.keep({"b"})
    measured.traffic_of("b").bytes_in += 5
    assert {topic: traffic.bytes_in for topic, traffic in measured} == {"b": 5}


def test_without_topics_of_their_own_all_share_one_label() -> None:
    measured = Measurements(max_topics=0)
    assert measured.traffic_of("a") is measured.traffic_of("b") is measured.other
