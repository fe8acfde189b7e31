"""A model of a Kafka cluster in plain Python: no Java, no Docker, no disk; every fault on demand.

`asking` says what a request and an answer are, `wire` turns bytes into them, `families` answers them, one file per API
family, and `model` is the cluster they all look at. It runs on whatever asyncio loop it is used on: the simulation's, whose time is
virtual, or a real one behind real sockets.
"""
