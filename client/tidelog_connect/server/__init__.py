"""The worker of ``tidelog connect``: the herder's records in topics, its commands as queries, and its group."""
