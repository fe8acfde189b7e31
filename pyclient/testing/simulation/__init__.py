"""Deterministic simulation: the whole client in virtual time, against a fake cluster on a network that fails.

Seeded generators decide everything that may happen in more than one order, so a seed replays exactly. Hours pass in
seconds, because time moves only when nothing can run.
"""
