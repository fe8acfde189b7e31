"""What every wheel must do on its own platform, without a broker: import completely, compiled, and carry a record.

Run by cibuildwheel and `make wheels` in an environment that holds the wheel and its dependencies only; uses nothing of
the checkout. With a number of milliseconds, ``import pyclient`` must not take more.
"""
from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import pkgutil
import subprocess
import sys
import sysconfig

COMPILED = ("pyclient.codec.batches", "pyclient.codec.crc", "pyclient.codec.encode", "pyclient.records.record")
NEVER = ("kio", "tenacity", "crc32c")
UNUSED = {
    "": (*NEVER, "attr", "asyncio", "pyclient.config"),
    "Producer": (*NEVER, "pyclient.admin", "pyclient.consumer", "pyclient.integration", "pyclient.testing"),
    "Consumer": (*NEVER, "pyclient.admin", "pyclient.integration", "pyclient.producer", "pyclient.testing"),
    "Admin": (*NEVER, "pyclient.consumer", "pyclient.producer"),
}
"""What an import of a name must not bring; the first is ``import pyclient``."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def check_compiled() -> None:
    for name in COMPILED:
        origin = importlib.import_module(name).__file__ or ""
        if origin.endswith(".py"):
            raise SystemExit(f"{name} was not compiled into this wheel: {origin}")
    for found in pkgutil.walk_packages(importlib.import_module("pyclient").__path__, "pyclient."):
        spec = importlib.util.find_spec(found.name)
        if spec and (spec.origin or "").endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
            importlib.import_module(found.name)


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


def check_unused() -> None:
    for name, unused in UNUSED.items():
        program = f"import sys, pyclient; {f'pyclient.{name}; ' if name else ''}print(*set(sys.modules) & set({unused}))"
        if brought := subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip():
            raise SystemExit(f"pyclient{name and '.'}{name} imports {brought}, which it does not use")


def check_no_gil_came_back() -> None:
    """An interpreter without a GIL takes one back for a module that does not say it can do without.

    Looked for in a process without PYTHON_GIL, in which cramjam is replaced: that has not said it on every Python.
    """
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return
    compiled = [name for name, module in sys.modules.items() if name.startswith("pyclient.") and str(getattr(module, "__file__", "")).endswith(".so")]
    program = ("import importlib, sys, types; sys.modules['cramjam'] = types.ModuleType('cramjam')\n"
               f"for name in {compiled}:\n    importlib.import_module(name)\n    if sys._is_gil_enabled(): sys.exit(name)")
    without = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run([sys.executable, "-c", program], env=without, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the GIL came back with an import, or that failed: {done.stderr}")
    print(f"wheel: no GIL came back with {len(compiled)} modules")


def import_ms(statement: str) -> float:
    """CPU time of an import in a process of its own, the least of ten: other load only adds to it."""
    program = f"import time; began = time.process_time(); {statement}; print((time.process_time() - began) * 1000)"
    return min(float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout) for _ in range(10))


def check_import_time(most_ms: float) -> None:
    alone = import_ms("import pyclient")
    print(f"wheel: import pyclient {alone:.1f} ms of CPU; with Producer and Consumer {import_ms('from pyclient import Consumer, Producer'):.0f} ms")
    if alone > most_ms:
        raise SystemExit(f"import pyclient took {alone:.1f} ms; {most_ms} are the most")


if __name__ == "__main__":
    check_compiled()
    check_public_names()
    check_round_trip()
    check_unused()
    check_no_gil_came_back()
    for most_ms in sys.argv[1:]:
        check_import_time(float(most_ms))
    print("wheel: imports, is compiled, carries records through every codec")
