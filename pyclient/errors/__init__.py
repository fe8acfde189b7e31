"""Errors: one class per error code of brokers, one per failure that the client finds itself.

Independent of sockets, managers and retries: a caller reads the facts (``retriable``, ``refresh``, ``abortable``,
``fatal``) and decides. The groups are those of KIP-1050; each class is one row of a table::

    KafkaError ─ code, name, retriable, refresh, abortable, fatal, topic_partition, node
    ├─ RetriableError                   a later call may succeed; the client has retried within its time limits
    │  ├─ RefreshRetriableError         … after a refresh of metadata or coordinator (NotLeaderOrFollowerError …)
    │  ├─ KafkaTimeoutError             also TimeoutError
    │  │  └─ BootstrapError, MetadataTimeoutError, BufferExhaustedError, DeliveryTimeoutError
    │  ├─ RequestTimedOutError          also TimeoutError
    │  │  └─ ResponseTimeoutError       found by the client; the request may or may not have been carried out
    │  ├─ DisconnectError               also ConnectionError; the request may or may not have been carried out
    │  ├─ PasswordUnavailableError      no password for the login, from the user's function
    │  └─ TokenUnavailableError         no OAuth token for the login
    ├─ TransactionAbortableError        abort the transaction, then continue with the same producer
    ├─ ApplicationRecoverableError      close this client and open a new one (ProducerFencedError …)
    ├─ InvalidConfigurationError        change options, rights or data: repeating the call cannot help
    │  ├─ AuthenticationError           SslAuthenticationError, SaslAuthenticationError …
    │  ├─ AuthorizationError            TopicAuthorizationError, GroupAuthorizationError …
    │  └─ ConfigurationError            an option of this client; also ValueError
    │     └─ UnknownOptionError, UnsupportedFeatureError
    └─ every other broker code, and IllegalStateError, ClientClosedError, ProtocolError,
       CommitFailedError, DeliveryError, BulkDeliveryError …

Catch groups: ``except RetriableError``. ``error_for`` turns a broker's code into an error. Import all names from here;
the three modules are `base` (with the groups), `client` and `broker`.
"""
from pyclient.errors.base import *  # noqa: F403 all names of these modules are public here
from pyclient.errors.broker import *  # noqa: F403
from pyclient.errors.client import *  # noqa: F403
