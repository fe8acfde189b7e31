"""One producer, and one consumer, per worker process and set of options, shared by its tasks.

Independent of rows. Rule: between two tasks no record waits in a producer. A task that succeeds has flushed it; the
client of a task that fails is discarded. (Spark kills its workers: close and exit handlers may never run.)
"""
from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from ssl import SSLContext
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, cast

from pyspark import cloudpickle
from typing_extensions import Unpack

from pyclient.errors import ConfigurationError, KafkaError
from pyclient.integration.spark.garbage import leave_out_what_stays

if TYPE_CHECKING:
    from pyclient.option_types import ProducerOptions
    from pyclient.producer.facade import Producer

MOST: Final = 4
"""Clients kept per process; the one unused for the longest time is closed."""


class Client(Protocol):
    """What is kept: a producer, or what holds several clients."""

    def close(self, timeout: float = ...) -> object:
        """Close it within so many seconds."""


C = TypeVar("C", bound=Client)
_Key: TypeAlias = tuple[int, bytes]
_kept: Final[OrderedDict[_Key, Client]] = OrderedDict()
_guard = threading.Lock()


def _new_guard() -> None:
    global _guard
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    # The process may be forked while another thread holds the lock. The child has no producers yet: keys hold the pid.
    os.register_at_fork(after_in_child=_new_guard)


@contextlib.contextmanager
def shared_producer(config: Mapping[str, object] | None = None, /, **options: Unpack[ProducerOptions]) -> Iterator[Producer]:
    """The producer of this worker process for these options, for one task at a time. Use it in ``with``, within a task.

    At the end of the block everything sent is flushed, which waits at most ``delivery_timeout_ms``. Do not close it.

    Raises:
        ConfigurationError: as `pyclient.Producer`.
        DeliveryError: records were not delivered. Let it end the task: Spark repeats it, and with it all its records.
    """
    from pyclient.producer.facade import Producer  # here: tasks that only read do without it

    with kept({**(config or {}), **options}, lambda: Producer(config, **options)) as producer:
        yield producer
        producer.flush()


@contextlib.contextmanager
def kept(options: Mapping[str, object], make: Callable[[], C]) -> Iterator[C]:
    """The client of this process for these options, made when there is none; the block's failure discards it."""
    key = (os.getpid(), _same_bytes(options))
    new = key not in _kept
    client = _taken(key, make)
    try:
        yield client
    except BaseException:
        _discard(key)
        raise
    if new:
        leave_out_what_stays()


@contextlib.contextmanager
def borrowed(options: Mapping[str, object], make: Callable[[], C]) -> Iterator[C]:
    """As `kept`, but for this block alone until it ends: a generator may be left unfinished."""
    key = (os.getpid(), _same_bytes(options))
    with _guard:
        found = cast("C | None", _kept.pop(key, None))
        client = found or make()
    try:
        yield client
    except BaseException:
        _end(client)
        raise
    _keep(key, client)
    if found is None:
        leave_out_what_stays()


def pickled(options: Mapping[str, object]) -> bytes:
    """*options* as Spark sends them to tasks: they may be functions of the user's main program.

    Raises:
        ConfigurationError: one of them cannot be sent; says which, and what to do.
    """
    return b"".join(_pickled(name, value) for name, value in sorted(options.items()))


def _pickled(name: str, value: object) -> bytes:
    try:
        made: bytes = cloudpickle.dumps((name, value))  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever an object's own code raises
        what = f"{name} is an object ({type(value).__name__}) that cannot be sent to tasks, for it cannot be pickled"
        raise ConfigurationError(f"{what}: {_instead(value)}", option=name) from error
    return made


def _instead(value: object) -> str:
    if isinstance(value, SSLContext):
        return "name files that are on every machine (ssl_truststore_location, ssl_keystore_location), or give PEM texts (ssl_truststore_certificates …)"
    if callable(value):
        return "give 'package.module:function', which tasks can import, or a function that opens what it needs when it is called"
    return "give a name, 'package.module:Class', or an object that opens what it needs when it is used"


def _same_bytes(options: Mapping[str, object]) -> bytes:
    # A digest: what is kept for as long as the process lives need not have passwords in it.
    return hashlib.sha256(pickled(options)).digest()


def _taken(key: _Key, make: Callable[[], C]) -> C:
    with _guard:  # also while it is made: two threads share one
        client = cast(C, _kept.get(key)) or make()
        _kept[key] = client
    _keep(key, client)
    return client


def _keep(key: _Key, client: Client) -> None:
    """As the one that was used last; those used least recently are closed."""
    with _guard:
        replaced = _kept.pop(key, client)
        _kept[key] = client
        surplus = [_kept.pop(old) for old in list(_kept)[:-MOST] if old[0] == key[0]]
    for each in (*surplus, *(() if replaced is client else (replaced,))):
        each.close()


def _discard(key: _Key) -> None:
    with _guard:
        client = _kept.pop(key, None)
    if client is not None:
        _end(client)


def _end(client: Client) -> None:
    with contextlib.suppress(KafkaError):  # the task's own error is on its way, and says more
        client.close(timeout=0)
