"""Connections by node and use before scripted peers: which is opened, when again, and what ends it."""
from __future__ import annotations
