"""Options that producer, consumer and admin share: addresses, timeouts, back-off, metadata, limits."""
from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from pyclient.config.addresses import Address
from pyclient.config.declaration import NotYet, Rule, option
from pyclient.config.kinds import INT16_MAX, INT64_MAX, Addresses, Anything, Bool, Choice, Int, Names, Plugins, ProxyUrl, Text
from pyclient.config.security import SecurityConfig

if TYPE_CHECKING:
    from tenacity.wait import wait_base

NOT_YET = (
    NotYet("metrics_recording_level", lambda value: value != "INFO", "Leave it out: there are only metrics of level INFO."),
    NotYet("metric_reporters", bool, "Until then read metrics() and export them yourself."),
    NotYet(
        "enable_metrics_push",
        lambda value: value is True,
        "Until then read metrics() and export them yourself.",
    ),
)

RULES = (
    Rule(
        ("reconnect_backoff_max_ms", "reconnect_backoff_ms"),
        lambda c: c.reconnect_backoff_max_ms >= c.reconnect_backoff_ms,
        "reconnect_backoff_max_ms must be at least reconnect_backoff_ms",
        yields={
            "reconnect_backoff_max_ms": lambda c: c.reconnect_backoff_ms,
            "reconnect_backoff_ms": lambda c: c.reconnect_backoff_max_ms,
        },
    ),
    Rule(
        ("retry_backoff_max_ms", "retry_backoff_ms"),
        lambda c: c.retry_backoff_max_ms >= c.retry_backoff_ms,
        "retry_backoff_max_ms must be at least retry_backoff_ms",
        yields={
            "retry_backoff_max_ms": lambda c: c.retry_backoff_ms,
            "retry_backoff_ms": lambda c: c.retry_backoff_max_ms,
        },
    ),
    Rule(
        ("socket_connection_setup_timeout_max_ms", "socket_connection_setup_timeout_ms"),
        lambda c: c.socket_connection_setup_timeout_max_ms >= c.socket_connection_setup_timeout_ms,
        "socket_connection_setup_timeout_max_ms must be at least socket_connection_setup_timeout_ms",
        yields={
            "socket_connection_setup_timeout_max_ms": lambda c: c.socket_connection_setup_timeout_ms,
            "socket_connection_setup_timeout_ms": lambda c: c.socket_connection_setup_timeout_max_ms,
        },
    ),
    Rule(
        ("default_api_timeout_ms", "request_timeout_ms"),
        lambda c: c.default_api_timeout_ms >= c.request_timeout_ms,
        "default_api_timeout_ms must be at least request_timeout_ms: a call takes at least one request",
        yields={
            "default_api_timeout_ms": lambda c: c.request_timeout_ms,
            "request_timeout_ms": lambda c: c.default_api_timeout_ms,
        },
    ),
)


@attrs.define(frozen=True, kw_only=True, repr=False)
class ClientConfig(SecurityConfig):
    """Options of every client."""

    RULES: ClassVar[tuple[Rule, ...]] = RULES
    NOT_YET: ClassVar[tuple[NotYet, ...]] = NOT_YET

    bootstrap_servers: tuple[Address, ...] = option(
        "0.8", (), Addresses(),
        "Brokers to connect to first, host:port; they name the others. Two or three are enough.",
        importance="high")
    client_id: str = option(
        "0.8", "", Text(longest=INT16_MAX), "Name of this client in broker logs, quotas and metrics; empty: a generated name.")
    client_dns_lookup: str = option(
        "2.1", "use_all_dns_ips", Choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
        "Every address of a host name is tried. resolve_canonical_bootstrap_servers_only: TLS and logins (Kerberos) also know bootstrap servers by the "
        "canonical name of each address, not by the name in bootstrap_servers.")

    proxy_url: str | None = option(
        "pyclient", None, ProxyUrl(),
        "Connect to brokers and token endpoints through this proxy; it may have user:password@. socks5h and http let the proxy resolve names. Needs the extra proxy.",
        importance="low", secret=True)
    allow_imports: tuple[str, ...] = option(
        "pyclient", (), Names(),
        "Modules, or packages of them, from which a configuration mapping may import 'package.module:Class'. Keyword arguments may always import. "
        "Itself it is a keyword argument only; the environment variable PYCLIENT_ALLOW_IMPORTS adds to it.", importance="low")
    config_providers: tuple[str, ...] = option(
        "4.2", (), Names(),
        "Where values stand that are written ${provider:path:key}: file (Java's properties), directory (a file each), env. "
        "config.providers.file.class names the kind of a provider with another name; config.providers.file.param.allowed.paths, "
        "of env param.allowlist.pattern, limit it.",
        importance="low")

    request_timeout_ms: int = option(
        "0.9", 30_000, Int(), "Longest wait for the answer to one request; after that its connection is closed.")
    default_api_timeout_ms: int = option(
        "2.0", 60_000, Int(), "Timeout of calls without a timeout argument, retries included.")
    retry_backoff_ms: int = option(
        "0.8", 100, Int(high=INT64_MAX), "First wait before a failed request is repeated; doubles, with 20 % jitter (KIP-580).",
        importance="low")
    retry_backoff_max_ms: int = option(
        "3.7", 1_000, Int(high=INT64_MAX), "Longest wait before a failed request is repeated.", importance="low")
    retry_backoff: wait_base | None = option(
        "pyclient", None, Anything("a tenacity wait", check=callable, accepts="wait_base"),
        "A tenacity wait (such as wait_exponential_jitter) that replaces retry_backoff_ms and retry_backoff_max_ms.",
        importance="low")

    connections_max_idle_ms: int = option(
        "0.9", 540_000, Int(-1, INT64_MAX), "Close a connection that was idle for so long; -1: never. Brokers do so after 10 minutes.")
    reconnect_backoff_ms: int = option(
        "0.8", 50, Int(high=INT64_MAX), "First wait before connecting to a broker again; doubles, with 20 % jitter.",
        importance="low")
    reconnect_backoff_max_ms: int = option(
        "0.11", 1_000, Int(high=INT64_MAX), "Longest wait before connecting to a broker again.", importance="low")
    socket_connection_setup_timeout_ms: int = option(
        "2.7", 10_000, Int(1, INT64_MAX), "Longest time for the first attempt to open a connection; doubles (KIP-601).")
    socket_connection_setup_timeout_max_ms: int = option(
        "2.7", 30_000, Int(1, INT64_MAX), "Longest time for any attempt to open a connection.")
    send_buffer_bytes: int = option(
        "0.8", 4_194_304, Int(-1),
        "Size of the socket's send buffer (SO_SNDBUF), -1: the system's default. 4 MiB (Java: 128 KiB): several requests fit and are written without waiting. "
        "If the system's limit is lower, that is used.")
    receive_buffer_bytes: int = option(
        "0.8", -1, Int(-1),
        "Size of the socket's receive buffer (SO_RCVBUF), -1: the system's default, which grows as needed (Java: 32 or 64 KiB).")
    receive_max_frame_bytes: int = option(
        "pyclient", 104_857_600, Int(1024),
        "Largest answer accepted from a broker; a larger one closes the connection.",
        importance="low")

    metadata_max_age_ms: int = option(
        "0.8", 300_000, Int(high=INT64_MAX), "Refresh the cluster's metadata after so long, even if nothing seems to have changed.",
        importance="low")
    metadata_recovery_strategy: str = option(
        "3.8", "rebootstrap", Choice(("rebootstrap", "none")),
        "When no known broker can be reached: start again from bootstrap_servers, or keep trying the known ones (KIP-899).",
        importance="low")
    metadata_recovery_rebootstrap_trigger_ms: int = option(
        "4.0", 300_000, Int(high=INT64_MAX), "Start again from bootstrap_servers after so long without metadata (KIP-1102).",
        importance="low")

    metrics_num_samples: int = option(
        "0.8", 2, Int(1), "Number of sample windows that averages, maxima and rates cover.", importance="low", unit="")
    metrics_sample_window_ms: int = option(
        "0.8", 30_000, Int(high=INT64_MAX), "Length of a sample window.", importance="low")
    metrics_recording_level: str = option(
        "0.10", "INFO", Choice(("INFO", "DEBUG", "TRACE")), "How detailed metrics are.", importance="low")
    metric_reporters: tuple[object, ...] = option(
        "0.8", (), Plugins(), "Exporters that metrics are pushed to.", importance="low")
    enable_metrics_push: bool = option(
        "3.7", False, Bool(), "Let the cluster collect this client's metrics (KIP-714). Not supported yet, so off (Java: on).",
        importance="low")
