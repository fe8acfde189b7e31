"""What every wheel must do on its own platform, without a broker: import completely, compiled, and carry a record.

Run by cibuildwheel in an environment that holds the wheel and its dependencies only; uses nothing of the checkout.
"""
from __future__ import annotations

import importlib

COMPILED = ("pyclient.codec.batches", "pyclient.codec.crc", "pyclient.codec.encode", "pyclient.codec.record")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def check_compiled() -> None:
    for name in COMPILED:
        origin = importlib.import_module(name).__file__ or ""
        if origin.endswith(".py"):
            raise SystemExit(f"{name} was not compiled into this wheel: {origin}")


def check_public_names() -> None:
    package = importlib.import_module("pyclient")
    for name in package.__all__:
        getattr(package, name)


def check_round_trip() -> None:
    from pyclient.codec.batches import read_batches
    from pyclient.codec.encode import encode_batch

    sent = [(1_700_000_000_000 + n, b"key", b"value %d" % n, [("header", None)]) for n in range(1000)]
    for codec in CODECS:
        (batch,) = read_batches(encode_batch(sent, compression=codec))
        got = [(record.timestamp, record.key, record.value, record.headers) for record in batch.records("t", 0)]
        if got != sent:
            raise SystemExit(f"records changed on their way through {codec}")


if __name__ == "__main__":
    check_compiled()
    check_public_names()
    check_round_trip()
    print("wheel: imports, is compiled, carries records through every codec")
