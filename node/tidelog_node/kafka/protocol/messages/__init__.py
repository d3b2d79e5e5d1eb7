"""Requests and responses, one module per API or family of APIs, declared once for all their versions."""
