"""Connections: the pool, connecting, TLS, logins. The only package with sockets besides `runtime`."""
