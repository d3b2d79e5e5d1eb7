"""Requests and responses of administrators, nodes and controllers, as values.

Cores and handlers use these classes alone. The edges convert them: for gRPC, a ``MessageCodec`` is derived from a class
and the message of the same name in ``proto/tidelog/v1``; for Kafka's protocol, ``tidelog_node.kafka.apis`` has one
converter per API. Fields have Kafka's names. An ``error`` is None on success.
"""
