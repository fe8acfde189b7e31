"""Decisions: which request goes where, when, and what its outcome means. No sockets, clocks, threads or locks."""
