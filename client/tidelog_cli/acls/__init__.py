"""``tidelog acl``."""
