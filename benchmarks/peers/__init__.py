"""Tidelog next to Apache Kafka: the same work for both, by the same client, in alternation.

``python -m benchmarks.peers`` (``make bench-kafka``) measures all of it. :mod:`benchmarks.peers.peer` defines the
operations of a participating cluster; :mod:`benchmarks.peers.apache_kafka` and :mod:`benchmarks.peers.tidelog_cluster`
implement them. Except in cold starts, both clusters run at the same time and work alternately. The noise of the machine
thus affects both, and the JVM keeps its compiled code, which a start before every round would discard. The cost of a
cluster while the other works is small and is measured as well.
"""
