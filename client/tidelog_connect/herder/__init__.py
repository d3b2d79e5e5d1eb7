"""The herder: the connectors of a group of workers, their states and the queries that run (pure).

``records`` are the records of the config and status topics, ``state`` is what they add up to, ``herder`` answers
requests with records, ``supervision`` decides which connectors run, and ``answers`` spells responses as Connect does.
"""
