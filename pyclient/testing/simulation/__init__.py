"""Deterministic simulation: the whole client on a loop whose time is virtual, against a fake cluster on a network that fails.

Everything that may happen in more than one order is decided by one seeded generator, so a seed replays exactly. Hours pass
in seconds, because time moves only when nothing can run.
"""
