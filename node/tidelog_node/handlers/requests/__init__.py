"""Requests and responses of clients and followers, as values. The codecs of their gRPC messages are derived from them.

Produce and Fetch are converted by hand, because they are frequent: see ``handlers.produce`` and ``fetching.messages``.
"""
