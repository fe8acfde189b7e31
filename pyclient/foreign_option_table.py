"""The table of other clients' option names and values: what each is here, or why it has no effect or is refused.

For Kafka 0.8 … 4.3 (Java and the old Scala clients), librdkafka (confluent-kafka), kafka-python and aiokafka. Names
with the same meaning in this client are not in the table: they are its own options. `foreign_options` applies it.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias


class Renamed(NamedTuple):
    """The option is called ``to`` here; ``value`` converts the other client's value."""

    to: str
    value: Callable[[Any], Any] = lambda value: value
    note: str = ""


class Ignored(NamedTuple):
    """The option has no effect here, and none is needed."""

    why: str


class Refused(NamedTuple):
    """Ignoring the option would change what the program does: the message says what to use instead."""

    why: str


Fate: TypeAlias = Renamed | Ignored | Refused


class ByValue(NamedTuple):
    """The result depends on the value; texts are compared in lower case."""

    fates: Mapping[object, Fate]
    otherwise: Fate


# ── reasons that many names share ────────────────────────────────────────────────────────────────────────────────────

_ZOOKEEPER = Ignored("clients have not used ZooKeeper since Kafka 0.9")
_JAVA = Ignored("it sets up Java's own security providers")
_KERBEROS = Ignored("the system's Kerberos library gets and renews tickets")
_TOKEN_CHECK = Ignored("brokers check tokens, a client does not")
_INTERNAL = Ignored("it was internal to Java's client")
_LOG = Ignored("logging goes through Python's logging module, under 'pyclient'")
_THREADS = Ignored("this client has one event loop, without such a knob")
_VERSIONS = Ignored("API versions are negotiated on each connection")
_UNUSED = Ignored("librdkafka itself no longer uses it")
_BYTES_RULE = Ignored("batches and queues are bounded by bytes: batch_size and buffer_memory")
_C_ONLY = Refused("it is a C function of librdkafka, without a counterpart here")
_JAVA_LOGIN = Refused("it names a Java class; give sasl_token_provider, or register a SaslMechanism plugin")
_ANSWERED = Refused("use what send returns (result, exception, add_done_callback), or its on_delivery argument")
_COMMITS = Refused("commit returns or raises, commit_async takes a callback, and on_commit of an interceptor hears of each commit")
_LISTENER = Refused("pass rebalance_listener to the Consumer")
_ENGINE = Refused("load keys from an OpenSSL engine into an ssl.SSLContext and pass ssl_context")
_MIRROR = Refused("it belongs to the old MirrorMaker tool, not to a client")
_MSK = Ignored("sasl_mechanism=AWS_MSK_IAM signs without it")
_METADATA_OIDC = Refused("fetch the cloud's token in a function and pass that as sasl_token_provider")


def _negative_is_forever(value: Any) -> Any:
    return 2**63 - 1 if str(value).strip() == "-1" else value


def _zero_is_default(value: Any) -> Any:
    return -1 if str(value).strip() == "0" else value


def _kibibytes(value: Any) -> Any:
    return int(value) * 1024


def _token_function(provider: Any) -> Any:
    """kafka-python's and aiokafka's objects: ``token()``, which may be a coroutine, and perhaps ``extensions()``."""
    if not hasattr(provider, "token"):
        return provider
    return functools.partial(_with_extensions, provider) if hasattr(provider, "extensions") else provider.token


def _with_extensions(provider: Any) -> Any:
    given = provider.token()
    if isinstance(given, str):
        return given, None, None, provider.extensions()
    return _awaited_with_extensions(provider, given)


async def _awaited_with_extensions(provider: Any, given: Any) -> Any:
    return await given, None, None, provider.extensions()


def token_callback(callback: Any) -> Any:
    """A callback of librdkafka takes sasl.oauthbearer.config and returns (token, expiry in seconds), possibly with
    principal and extensions."""
    if not callable(callback):
        raise TypeError(type(callback))  # also no path to one: it would be called without librdkafka's argument
    return functools.partial(callback, "")


def _colons(value: Any) -> Any:
    return value.replace(":", ",") if isinstance(value, str) else value


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────

Row: TypeAlias = Fate | ByValue

JAVA: Final[Mapping[str, Row]] = {
    "auto.include.jmx.reporter": Ignored("there is no JMX in Python: read metrics()"),
    "block.on.buffer.full": ByValue(
        {"true": Ignored("send always waits for room, up to max_block_ms"), "false": Renamed("max_block_ms", lambda _: 0)},
        Refused("write max_block_ms: how long send may wait for room"),
    ),
    "metadata.fetch.timeout.ms": Renamed("max_block_ms"),
    "timeout.ms": Renamed("request_timeout_ms"),
    "fetch.buffer.bytes": Renamed("max_partition_fetch_bytes"),
    "heartbeat.frequency": Refused("give the time between heartbeats: heartbeat_interval_ms"),
    "socket.receive.buffer.bytes": Renamed("receive_buffer_bytes", _zero_is_default),
    "socket.send.buffer.bytes": Renamed("send_buffer_bytes", _zero_is_default),
    "total.memory.bytes": Renamed("fetch_buffer_memory"),
    "internal.leave.group.on.close": _INTERNAL,
    "internal.auto.downgrade.txn.commit": _INTERNAL,
    "internal.throw.on.fetch.stable.offset.unsupported": _INTERNAL,
    "security.providers": _JAVA,
    "ssl.provider": _JAVA,
    "ssl.keymanager.algorithm": _JAVA,
    "ssl.trustmanager.algorithm": _JAVA,
    "ssl.secure.random.implementation": _JAVA,
    "ssl.engine.factory.class": Refused("it names a Java class; make an ssl.SSLContext and pass ssl_context"),
    "sasl.client.callback.handler.class": ByValue({"software.amazon.msk.auth.iam.iamclientcallbackhandler": _MSK}, _JAVA_LOGIN),
    "sasl.login.callback.handler.class": _JAVA_LOGIN,
    "sasl.login.class": _JAVA_LOGIN,
    "sasl.oauthbearer.jwt.retriever.class": _JAVA_LOGIN,
    "sasl.oauthbearer.jwt.validator.class": _TOKEN_CHECK,
    "sasl.oauthbearer.clock.skew.seconds": _TOKEN_CHECK,
    "sasl.oauthbearer.expected.audience": _TOKEN_CHECK,
    "sasl.oauthbearer.expected.issuer": _TOKEN_CHECK,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _TOKEN_CHECK,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _TOKEN_CHECK,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _TOKEN_CHECK,
    "sasl.oauthbearer.jwks.endpoint.url": _TOKEN_CHECK,
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
}

SCALA: Final[Mapping[str, Row]] = {
    "metadata.broker.list": Renamed("bootstrap_servers"),
    "request.required.acks": Renamed("acks"),
    "producer.type": Ignored("send always returns at once; wait for the Delivery it returns to be synchronous"),
    "serializer.class": Renamed("value_serializer"),
    "key.serializer.class": Renamed("key_serializer"),
    "compression.codec": Renamed("compression_type"),
    "compressed.topics": ByValue(
        {"": Ignored("it is empty, so compression_type applies to every topic")},
        Refused("write compression_by_topic='orders:gzip,logs:gzip', and leave out compression.codec: "
                "other topics are then not compressed"),
    ),
    "message.send.max.retries": Renamed("retries"),
    "topic.metadata.refresh.interval.ms": Renamed("metadata_max_age_ms", _negative_is_forever),
    "queue.buffering.max.ms": Renamed("linger_ms"),
    "queue.buffering.max.messages": _BYTES_RULE,
    "queue.enqueue.timeout.ms": Renamed("max_block_ms", _negative_is_forever),
    "batch.num.messages": _BYTES_RULE,
    "host": Refused("write bootstrap_servers='host:port'"),
    "port": Refused("write bootstrap_servers='host:port'"),
    "zookeeper.connect": Refused("clients talk to brokers alone since Kafka 0.9: write bootstrap_servers='host:port'"),
    "zookeeper.connection.timeout.ms": _ZOOKEEPER,
    "zookeeper.session.timeout.ms": _ZOOKEEPER,
    "zookeeper.sync.time.ms": _ZOOKEEPER,
    "auto.commit.enable": Renamed("enable_auto_commit"),
    "consumer.id": Ignored("the group's coordinator names its members"),
    "consumer.timeout.ms": ByValue(
        {"-1": Ignored("iteration waits without end anyway"), "inf": Ignored("iteration waits without end anyway")},
        Refused("iteration never ends on its own. Write: while records := consumer.poll(1): ... (it ends when no record came for 1 s)"),
    ),
    "dual.commit.enabled": _ZOOKEEPER,
    "fetch.message.max.bytes": Renamed("max_partition_fetch_bytes"),
    "fetch.wait.max.ms": Renamed("fetch_max_wait_ms"),
    "mirror.consumer.numthreads": _MIRROR,
    "mirror.topics.blacklist": _MIRROR,
    "mirror.topics.whitelist": _MIRROR,
    "num.consumer.fetchers": _THREADS,
    "offsets.channel.backoff.ms": Renamed("retry_backoff_ms"),
    "offsets.channel.socket.timeout.ms": Renamed("request_timeout_ms"),
    "offsets.commit.max.retries": Ignored("a commit is repeated until its timeout, default_api_timeout_ms"),
    "offsets.storage": ByValue(
        {"kafka": Ignored("offsets are always kept in Kafka")},
        Refused("offsets are kept in Kafka, no longer in ZooKeeper: leave it out"),
    ),
    "queued.max.message.chunks": Ignored("what is fetched ahead is bounded by bytes: fetch_buffer_memory"),
    "rebalance.backoff.ms": Ignored("the group's coordinator leads rebalances"),
    "rebalance.max.retries": Ignored("the group's coordinator leads rebalances"),
    "refresh.leader.backoff.ms": Renamed("retry_backoff_ms"),
    "socket.timeout.ms": Renamed("request_timeout_ms"),
}

LIBRDKAFKA: Final[Mapping[str, Row]] = {
    # cluster, connections
    "message.max.bytes": Renamed("max_request_size"),
    "message.copy.max.bytes": Ignored("a record is copied once, into its batch"),
    "receive.message.max.bytes": Renamed("receive_max_frame_bytes"),
    "max.in.flight": Renamed("max_in_flight_requests_per_connection"),
    "topic.metadata.refresh.fast.interval.ms": Renamed("retry_backoff_ms"),
    "topic.metadata.refresh.fast.cnt": _UNUSED,
    "topic.metadata.refresh.sparse": Ignored("metadata is requested for the topics in use only"),
    "topic.metadata.propagation.max.ms": Ignored("an unknown topic is requested again until max_block_ms or the call's timeout"),
    "topic.blacklist": Refused("subscribe to a pattern that leaves those topics out"),
    "socket.blocking.max.ms": _UNUSED,
    "socket.keepalive.enable": Ignored("keep-alive is always on, with a probe after 60 s without traffic"),
    "socket.nagle.disable": Ignored("TCP_NODELAY is always set"),
    "socket.max.fails": Ignored("a connection is closed at the first failure"),
    "broker.address.ttl": Ignored("names are resolved again for every connection"),
    "broker.address.family": ByValue(
        {"any": Ignored("both families are tried")},
        Refused("both families are tried; write addresses of one family in bootstrap_servers"),
    ),
    "reconnect.backoff.jitter.ms": _UNUSED,
    "api.version.request": _VERSIONS,
    "api.version.request.timeout.ms": _VERSIONS,
    "api.version.fallback.ms": _VERSIONS,
    "broker.version.fallback": _VERSIONS,
    "enable.random.seed": Ignored("randomness here never touches the process's generator"),
    "builtin.features": Ignored("it lists what librdkafka was built with"),
    "client.software.name": Ignored("the client sends its own name to brokers"),
    "client.software.version": Ignored("the client sends its own version to brokers"),
    "internal.termination.signal": _THREADS,
    "plugin.library.paths": Refused("it loads C libraries; pass interceptors"),
    # logs, events, callbacks
    "debug": _LOG,
    "log_level": _LOG,
    "log_cb": _LOG,
    "logger": _LOG,
    "log.queue": _LOG,
    "log.thread.name": _LOG,
    "log.connection.close": _LOG,
    "statistics.interval.ms": Ignored("call metrics() when you want the numbers"),
    "stats_cb": Ignored("call metrics() when you want the numbers"),
    "error_cb": Ignored("the call that fails raises; what happens in between is logged"),
    "throttle_cb": Ignored("throttling is obeyed, and logged"),
    "enabled_events": _C_ONLY,
    "background_event_cb": _C_ONLY,
    "socket_cb": _C_ONLY,
    "connect_cb": _C_ONLY,
    "closesocket_cb": _C_ONLY,
    "open_cb": _C_ONLY,
    "resolve_cb": _C_ONLY,
    "opaque": _C_ONLY,
    "default_topic_conf": _C_ONLY,
    "default.topic.config": Refused("put its entries into the configuration itself"),
    "msg_order_cmp": _C_ONLY,
    "consume_cb": Refused("iterate over the Consumer, or call poll"),
    "consume.callback.max.messages": Refused("iterate over the Consumer, or call poll(max_records=…)"),
    "rebalance_cb": _LISTENER,
    "offset_commit_cb": _COMMITS,
    "on_commit": _COMMITS,
    "dr_cb": _ANSWERED,
    "dr_msg_cb": _ANSWERED,
    "on_delivery": _ANSWERED,
    "delivery.report.only.error": Ignored("flush raises every failure whose Delivery was not read"),
    "partitioner_cb": Refused("pass partitioner=, an object with a partition method"),
    # TLS
    "ssl.ca.location": Renamed("ssl_truststore_location"),
    "ssl.ca.pem": Renamed("ssl_truststore_certificates"),
    "ssl_ca": _C_ONLY,
    "ssl.ca.certificate.stores": Refused("load them into an ssl.SSLContext (load_default_certs) and pass ssl_context"),
    "ssl.certificate.pem": Renamed("ssl_keystore_certificate_chain"),
    "ssl_certificate": _C_ONLY,
    "ssl.key.pem": Renamed("ssl_keystore_key"),
    "ssl_key": _C_ONLY,
    "ssl.curves.list": Refused("set it on an ssl.SSLContext (set_ecdh_curve) and pass ssl_context"),
    "ssl.sigalgs.list": Refused("set it on an ssl.SSLContext and pass ssl_context"),
    "ssl.providers": _ENGINE,
    "ssl.engine.location": _ENGINE,
    "ssl.engine.id": _ENGINE,
    "ssl_engine_callback_data": _ENGINE,
    "ssl.certificate.verify_cb": Refused("give an ssl.SSLContext that verifies as you need: ssl_context"),
    "enable.ssl.certificate.verification": ByValue(
        {"true": Ignored("certificates are always verified")},
        Refused("it is not switched off by an option; if it must be, pass an ssl.SSLContext with CERT_NONE as ssl_context"),
    ),
    "https.ca.location": Refused("set the environment variable SSL_CERT_FILE to that file, or fetch tokens in a function: sasl_token_provider"),
    "https.ca.pem": Refused("fetch tokens in a function and pass that as sasl_token_provider"),
    # SASL
    "sasl.mechanisms": Renamed("sasl_mechanism"),
    "sasl.username": Renamed("sasl_plain_username"),
    "sasl.password": Renamed("sasl_plain_password"),
    "sasl.kerberos.principal": _KERBEROS,
    "sasl.kerberos.keytab": Refused("set the environment variable KRB5_CLIENT_KTNAME to the keytab"),
    "sasl.oauthbearer.config": Refused("it is for librdkafka's unsecured test tokens; give sasl_token_provider"),
    "enable.sasl.oauthbearer.unsecure.jwt": Refused("unsecured tokens are not made here; give sasl_token_provider"),
    "oauthbearer_token_refresh_cb": Refused("give sasl_token_provider, a function that returns the token"),
    "oauth_cb": Renamed("sasl_token_provider", token_callback),
    "sasl.oauthbearer.method": ByValue(
        {"oidc": Ignored("sasl_oauthbearer_token_endpoint_url decides that")},
        Refused("give sasl_token_provider, a function that returns the token"),
    ),
    "sasl.oauthbearer.client.id": Renamed("sasl_oauthbearer_client_credentials_client_id"),
    "sasl.oauthbearer.client.secret": Renamed("sasl_oauthbearer_client_credentials_client_secret"),
    "sasl.oauthbearer.extensions": Refused("return them from sasl_token_provider, with the token"),
    "sasl.oauthbearer.grant.type": Ignored("an assertion option asks for the jwt-bearer grant, else it is client credentials"),
    "sasl.oauthbearer.assertion.private.key.pem": Refused("write it to a file: sasl_oauthbearer_assertion_private_key_file"),
    "sasl.oauthbearer.assertion.jwt.template.file": Renamed("sasl_oauthbearer_assertion_template_file"),
    "sasl.oauthbearer.metadata.authentication.type": ByValue(
        {"none": Ignored("none is what is done")}, _METADATA_OIDC),
    # groups and fetching
    "group.protocol.type": ByValue(
        {"consumer": Ignored("it is always 'consumer'")}, Refused("groups of consumers are of type 'consumer': leave it out")),
    "coordinator.query.interval.ms": Ignored("the coordinator is looked up when it is needed"),
    "queued.min.messages": Ignored("what is fetched ahead is bounded by bytes: fetch_buffer_memory"),
    "queued.max.messages.kbytes": Renamed("fetch_buffer_memory", _kibibytes),
    "fetch.queue.backoff.ms": Ignored("fetching goes on as soon as there is room"),
    "fetch.error.backoff.ms": Renamed("retry_backoff_ms"),
    "offset.store.method": ByValue(
        {"broker": Ignored("offsets are always kept in Kafka"), "none": Renamed("enable_auto_commit", lambda _: False)},
        Refused("offsets are kept in Kafka, not in files: leave it out"),
    ),
    "offset.store.path": Refused("offsets are kept in Kafka, not in files: leave it out"),
    "offset.store.sync.interval.ms": Ignored("offsets are kept in Kafka, not in files"),
    "enable.partition.eof": ByValue(
        {"false": Ignored("no such event exists here")},
        Refused("compare position() with end_offsets(), or look at lag()"),
    ),
    # producing
    "enable.gapless.guarantee": ByValue(
        {"false": Ignored("off is what it is")}, Refused("it is librdkafka's experiment; enable_idempotence keeps the order")),
    "queue.buffering.max.kbytes": Renamed("buffer_memory", _kibibytes),
    "queue.buffering.backpressure.threshold": Ignored("batches go on filling while a broker is busy"),
    "sticky.partitioning.linger.ms": ByValue(
        {"0": Refused("sticky batches are switched off by a partitioner: partitioner='random'")},
        Ignored("a sticky partition changes with its batches, by bytes"),
    ),
    "message.timeout.ms": Renamed("delivery_timeout_ms", lambda value: 2**31 - 1 if str(value).strip() == "0" else value),
    "queuing.strategy": ByValue(
        {"fifo": Ignored("it is always first in, first out")}, Refused("records leave in the order they were sent")),
    "produce.offset.report": _UNUSED,
    "compression.level": Refused("levels are per codec: compression_gzip_level, compression_lz4_level, compression_zstd_level"),
}

FROM_LIBRDKAFKA: Final = frozenset(LIBRDKAFKA) | {
    "auto.commit.enable", "batch.num.messages", "compression.codec", "fetch.message.max.bytes", "fetch.wait.max.ms", "message.send.max.retries",
    "metadata.broker.list", "queue.buffering.max.messages", "queue.buffering.max.ms", "request.required.acks", "socket.timeout.ms",
    "topic.metadata.refresh.interval.ms",
}
"""The names by which a configuration is known to be librdkafka's; it shares some with the old Scala clients."""

OTHER_DEFAULTS: Final[Mapping[str, str]] = {"producer": "partitioner", "consumer": "isolation_level"}
"""By role: the option whose default in librdkafka is another, and changes what a program does without an error."""

PYTHON: Final[Mapping[str, Row]] = {
    # kafka-python
    "api_version": _VERSIONS,
    "api_version_auto_timeout_ms": _VERSIONS,
    "bootstrap_topics_filter": Ignored("metadata is requested for the topics in use only"),
    "bootstrap_timeout_ms": Renamed("default_api_timeout_ms"),
    "default_offset_commit_callback": Refused("commit returns or raises; commit_async takes a callback"),
    "enable_incremental_fetch_sessions": Ignored("fetch sessions are used where brokers have them"),
    "kafka_client": Ignored("the network layer is not replaced by an option"),
    "legacy_iterator": Ignored("there is one iterator"),
    "metric_group_prefix": Ignored("metrics have Kafka's names"),
    "metrics_enabled": Ignored("metrics cost per batch, not per record: they are always on"),
    "receive_message_max_bytes": Renamed("receive_max_frame_bytes"),
    "sasl_kerberos_domain_name": Refused("set the brokers' names in krb5.conf instead"),
    "sasl_kerberos_name": Refused("give sasl_kerberos_service_name; the host is taken from each broker's address"),
    "sasl_oauth_token_provider": Renamed("sasl_token_provider", _token_function),
    "selector": _THREADS,
    "sock_chunk_buffer_count": _THREADS,
    "sock_chunk_bytes": _THREADS,
    "socket_options": Ignored("TCP_NODELAY is set; sizes are send_buffer_bytes and receive_buffer_bytes"),
    "socks5_proxy": Renamed("proxy_url"),
    "ssl_cafile": Renamed("ssl_truststore_location"),
    "ssl_certfile": Renamed("ssl_certificate_location"),
    "ssl_check_hostname": ByValue(
        {
            "true": Renamed("ssl_endpoint_identification_algorithm", lambda _: "https"),
            "false": Renamed("ssl_endpoint_identification_algorithm", lambda _: ""),
        },
        Refused("write ssl_endpoint_identification_algorithm='https' or ''"),
    ),
    "ssl_ciphers": Renamed("ssl_cipher_suites", _colons),
    "ssl_crlfile": Renamed("ssl_crl_location"),
    "ssl_keyfile": Renamed("ssl_key_location"),
    "ssl_password": Renamed("ssl_key_password"),
    # aiokafka
    "loop": Refused("an async client belongs to the loop it is entered in: leave it out"),
    "max_batch_size": Renamed("batch_size"),
    "rebalance_timeout_ms": Renamed("max_poll_interval_ms"),
}

ROLES: Final[Mapping[tuple[str, str], Row]] = {
    # names that other clients take everywhere, and that mean something for one kind of client only
    **{(role, name): Ignored("an answer ends the request; only a producer pipelines")
       for role in ("consumer", "admin") for name in ("max_in_flight_requests_per_connection", "max_in_flight")},
    **{(role, "message_max_bytes"): Ignored("only a producer sends records") for role in ("consumer", "admin")},
    **{(role, "client_rack"): Ignored("only a consumer reads from replicas") for role in ("producer", "admin")},
    ("producer", "allow_auto_create_topics"): ByValue(
        {"true": Ignored("a broker that creates topics automatically does so")},
        Refused("only brokers can forbid it: auto.create.topics.enable=false"),
    ),
    ("admin", "allow_auto_create_topics"): Ignored("the admin client creates topics only with create_topics"),
    ("admin", "interceptors"): Refused("the admin client has none"),
}

NAMES: Final[Mapping[str, Row]] = {
    name.replace(".", "_"): row for table in (JAVA, SCALA, LIBRDKAFKA, PYTHON) for name, row in table.items()
}


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_SERIALIZATION = "org.apache.kafka.common.serialization."
_SERDES = {
    "ByteArray": "bytes", "Bytes": "bytes", "ByteBuffer": "bytes", "String": "string", "Short": "short",
    "Integer": "integer", "Long": "long", "Float": "float", "Double": "double", "UUID": "uuid",
}


def _java_serdes(ending: str) -> dict[str, str | Refused]:
    return {f"{_SERIALIZATION}{name}{ending}".lower(): ours for name, ours in _SERDES.items()}


_SERIALIZERS: Final[Mapping[str, str | Refused]] = {
    **_java_serdes("Serializer"),
    "kafka.serializer.defaultencoder": "bytes",
    "kafka.serializer.stringencoder": "string",
    "kafka.serializer.longencoder": "long",
    "kafka.serializer.integerencoder": "integer",
}
_DESERIALIZERS: Final[Mapping[str, str | Refused]] = _java_serdes("Deserializer")
_ASSIGNORS: Final[Mapping[str, str | Refused]] = {
    "org.apache.kafka.clients.consumer.rangeassignor": "range",
    "org.apache.kafka.clients.consumer.roundrobinassignor": "roundrobin",
    "org.apache.kafka.clients.consumer.stickyassignor": "sticky",
    "org.apache.kafka.clients.consumer.cooperativestickyassignor": "cooperative-sticky",
}

VALUES: Final[Mapping[str, Mapping[str, object]]] = {
    "auto_offset_reset": {
        "smallest": "earliest", "beginning": "earliest", "-2": "earliest",
        "largest": "latest", "end": "latest", "-1": "latest", "error": "none",
    },
    "compression_type": {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4", "4": "zstd", "inherit": "none"},
    "security_protocol": {"plaintextsasl": "SASL_PLAINTEXT"},
    "ssl_endpoint_identification_algorithm": {"none": ""},
    "connections_max_idle_ms": {"0": -1},
    "key_serializer": _SERIALIZERS,
    "value_serializer": _SERIALIZERS,
    "key_deserializer": _DESERIALIZERS,
    "value_deserializer": _DESERIALIZERS,
    "assignors": _ASSIGNORS,
    "metric_reporters": {"org.apache.kafka.common.metrics.jmxreporter": ()},
    "partitioner": {
        "fnv1a_random": "fnv1a",
        "org.apache.kafka.clients.producer.internals.defaultpartitioner": "murmur2",
        "org.apache.kafka.clients.producer.roundrobinpartitioner": "round-robin",
        "org.apache.kafka.clients.producer.uniformstickypartitioner": "sticky",
        "kafka.producer.defaultpartitioner":
            Refused("it used Java's hashCode of the key object; pass an object with a partition method to do the same"),
        "kafka.producer.bytearraypartitioner":
            Refused("it used Java's hashCode of the bytes; pass an object with a partition method to do the same"),
    },
}
