"""Kafka Connect's predicates: the records that a transform applies to."""

from tidelog_connect.predicates.registry import PREDICATES, TOMBSTONE, Predicate
