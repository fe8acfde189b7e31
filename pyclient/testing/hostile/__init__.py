"""A hostile peer: what it does to clients, and what it may cost them at most."""
