"""A model of a Kafka cluster in plain Python: no Java, no Docker, no disk; every fault on demand.

`wire` decodes requests and encodes responses, `handlers` answers them, one file per API family, and `model` holds the
cluster's state. It runs on the asyncio loop of its user: the simulation's, with virtual time, or a real one with real
sockets.
"""
