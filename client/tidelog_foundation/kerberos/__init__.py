"""Kerberos: the names of users for principals, and the mechanism GSSAPI over python-gssapi."""
