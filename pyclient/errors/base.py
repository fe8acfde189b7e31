"""`KafkaError`, the base of all errors, and the groups of KIP-1050 that say what a caller can do."""
from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

from pyclient.records import Node, TopicPartition
from pyclient.redaction import printable

E = TypeVar("E", bound=BaseException)
_by_code: dict[int, type[KafkaError]] = {}
BY_CODE: Final[Mapping[int, type[KafkaError]]] = MappingProxyType(_by_code)
"""The class of each broker error code. Code 0 (none) and codes of future brokers are not in it: use `error_for`."""
_PACKAGE: Final = "pyclient.errors"


class KafkaError(Exception):
    """Base of all errors of this client. ``str(error)`` names the partition and the node when they are known."""

    __module__ = _PACKAGE  # where users import it from, in tracebacks and pickles

    code: int | None = None
    """The broker's error code; None when the client found the failure."""
    name: str = ""
    """Kafka's upper-case name of the code, as brokers log it."""
    retriable: ClassVar[bool] = False
    """The same request may succeed later."""
    refresh: ClassVar[bool] = False
    """Refresh metadata (or look up the coordinator) before trying again."""
    abortable: ClassVar[bool] = False
    """The open transaction must be aborted; the producer stays usable."""
    fatal: ClassVar[bool] = False
    """This client cannot continue: close it and open a new one."""

    topic_partition: TopicPartition | None
    node: Node | int | None

    def __init__(
        self, message: str = "", *, topic_partition: TopicPartition | None = None, node: Node | int | None = None
    ) -> None:
        super().__init__(message or _summary(type(self)))
        self.topic_partition = topic_partition
        self.node = node

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith(f"{_PACKAGE}."):
            cls.__module__ = _PACKAGE
        code = cls.__dict__.get("code")
        if code is not None:
            _by_code.setdefault(code, cls)

    @property
    def message(self) -> str:
        """The message without the partition and node that ``str(error)`` adds.

        One line without control characters: brokers, other members of groups and certificates write parts of it.
        """
        return printable(str(self.args[0])) if self.args else ""

    def __str__(self) -> str:
        places = [printable(str(place)) for place in (self.topic_partition, _node_text(self.node)) if place is not None]
        missing = [place for place in places if place not in self.message]
        return f"{', '.join(missing)}: {self.message}" if missing else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses build their message from other arguments, so a copy must not call their __init__ again.
        return _restore, (type(self), self.args, self.__dict__.copy())


def _restore(cls: type[KafkaError], args: tuple[Any, ...], state: dict[str, Any]) -> KafkaError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


def raisable(error: E) -> E:
    """A copy of a stored error, to be raised or returned.

    If the stored error itself were raised, its traceback would grow each time and keep the local variables of every
    frame alive.
    """
    other = copy.copy(error)
    other.__cause__, other.__context__, other.__suppress_context__ = error.__cause__, error.__context__, error.__suppress_context__
    return other


def _summary(cls: type[KafkaError]) -> str:
    sentence = (cls.__doc__ or cls.__name__).split("\n\n")[0]
    return " ".join(sentence.replace("``", "").split())


def _node_text(node: Node | int | None) -> str | None:
    return f"node {node}" if isinstance(node, int) else None if node is None else str(node)


# ── groups (KIP-1050) ────────────────────────────────────────────────────────────────────────────────────────────────


class RetriableError(KafkaError):
    """A later call may succeed: the client has retried within the call's time limit before it raised this."""

    retriable = True


class RefreshRetriableError(RetriableError):
    """A later call may succeed after metadata was refreshed or the coordinator was looked up again."""

    refresh = True


class TransactionAbortableError(KafkaError):
    """The transaction cannot be committed: abort it, then begin a new one with the same producer."""

    code, name = 120, "TRANSACTION_ABORTABLE"
    abortable = True


class ApplicationRecoverableError(KafkaError):
    """This client cannot continue: close it and open a new one."""

    fatal = True


class InvalidConfigurationError(KafkaError):
    """Options, rights, topic settings or the data do not allow the call: change them, repeating it cannot help."""

    code: int | None = 40
    name = "INVALID_CONFIG"


class AuthenticationError(InvalidConfigurationError):
    """The broker rejects the client's identity: check the ``sasl_*`` and ``ssl_*`` options."""


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed, and repeating it cannot help. Check the ``ssl_*`` options, ``security_protocol`` and
    the port; ``__cause__`` is OpenSSL's error. Causes: the broker's certificate is not trusted or is for another host;
    the broker requires a client certificate or rejects the one it got; the two sides share no TLS version or cipher
    suite; or only one of them uses TLS."""


class AuthorizationError(InvalidConfigurationError):
    """The client's principal lacks a right: grant it (``kafka-acls``), or use another principal."""
