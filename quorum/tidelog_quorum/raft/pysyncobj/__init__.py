"""A second Raft engine, on pysyncobj, for development on one machine."""
