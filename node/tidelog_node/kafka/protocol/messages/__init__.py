"""Requests and responses, one module per API or family of APIs, each declared once for all versions."""
