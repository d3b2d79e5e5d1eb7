"""Bearer tokens of OAuth 2: their validation, the keys that verify them, and the endpoints that issue them."""
