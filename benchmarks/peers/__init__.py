"""Tidelog next to Apache Kafka: the same work for both, by the same client, in turns.

``python -m benchmarks.peers`` (``make bench-kafka``) measures all of it. :mod:`benchmarks.peers.peer` says what a
cluster can do that takes part; :mod:`benchmarks.peers.apache_kafka` and :mod:`benchmarks.peers.tidelog_cluster` are the
two. Both are up at the same time, but for the cold starts, and work in turns. So the noise of the machine meets both,
and the JVM keeps the code that it has compiled, which a start before every round would take from it. What a cluster
takes while the other works is small and measured as well.
"""
