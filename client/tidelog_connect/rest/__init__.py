"""Kafka Connect's REST API.

``calls`` are plain functions from a request to an answer, ``routes`` their paths, ``application`` the ASGI application
around them, and ``service`` what they need of a worker.
"""
