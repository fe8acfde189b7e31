"""Settings and credentials of a secured cluster, without brokers; those run in tests/broker/test_secured_cluster.py."""
from __future__ import annotations

import contextlib
import json
import ssl
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

from kio.schema.errors import ErrorCode

from pyclient.testing import Credentials, LocalCluster, LocalClusterError, NotControllableError, Security, access
from pyclient.testing import cluster as cluster_module
from pyclient.testing.access import Brokers, Resource, grant, resource
from pyclient.testing.broker_security import LISTENERS, BrokerSecurity, Presented, protocol_map
from pyclient.testing.credentials import made_for
from pyclient.testing.probe import Address, NotReadyError

ODD = "it's \"so\" \\ {node} = # ; é ☃ 🙂"
SECURITY = Security(users={"alice": "alice-secret", "bob": ODD}, connections_max_reauth_ms=1500)


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Credentials, BrokerSecurity]]:
    with made_for(SECURITY) as both:
        yield both


@pytest.fixture
def credentials(made: tuple[Credentials, BrokerSecurity]) -> Credentials:
    return made[0]


@pytest.fixture
def settings(made: tuple[Credentials, BrokerSecurity]) -> dict[str, str]:
    return made[1].settings("4.3.1", "/keys.json")


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_equal_wishes_are_one_key_and_others_are_not() -> None:
    same = Security(users=dict(SECURITY.users), connections_max_reauth_ms=1500)
    assert (same, hash(same)) == (SECURITY, hash(SECURITY))
    others = (attrs.evolve(SECURITY, users={"alice": "another"}), attrs.evolve(SECURITY, super_users=("bob",)),
              attrs.evolve(SECURITY, connections_max_reauth_ms=7))
    for other in others:
        assert other != SECURITY
        assert len({SECURITY: 1, other: 2}) == 2


def test_a_security_request_does_not_change_with_the_users_mapping() -> None:
    users = {"alice": "one"}
    wish = Security(users=users, super_users="alice")
    users["alice"] = "two"
    assert wish.users == {"alice": "one"}
    assert wish.super_users == ("alice",)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"users": {"a b": "x"}}, "'a b' is not of ASCII letters"), ({"users": {"../x": "x"}}, "is not of ASCII"),
    ({"users": {"alice": ""}}, "password of alice is empty"), ({"users": {"alice": "a\nb"}}, "password of alice"),
    ({"connections_max_reauth_ms": -1}, "=-1 is negative"),
])
def test_what_brokers_could_not_take_is_refused_at_once(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Security(**wrong)  # type: ignore[arg-type]  # what a user may write


def test_no_repr_holds_a_secret(made: tuple[Credentials, BrokerSecurity]) -> None:
    given, brokers = made
    shown = "\n".join(map(repr, (SECURITY, given, brokers, *brokers.keystores.values(), given.tokens, *given.users.values(), given.stranger)))
    assert "alice" in shown
    for secret in (*SECURITY.users.values(), "PRIVATE KEY", given.stranger.key_password, '"kty"'):
        assert secret not in shown


# --- settings of brokers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", [name for name, each in LISTENERS.items() if "PLAIN" in each.mechanisms])
def test_any_password_comes_through_two_layers_of_escapes(settings: dict[str, str], listener: str) -> None:
    written = settings[f"listener.name.{listener.lower()}.plain.sasl.jaas.config"]
    head, _, rest = written.partition(" user_bob=")
    assert head.endswith("PlainLoginModule required user_alice=" + json.dumps('"alice-secret"')[1:-1])
    jaas = json.loads(f'"{rest.removesuffix(";")}"')  # a .properties file's escapes are JSON's
    assert jaas == '"' + ODD.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_each_listener_has_its_certificate_and_mechanisms(settings: dict[str, str]) -> None:
    names: dict[str, list[x509.GeneralName]] = {}
    for listener, each in LISTENERS.items():
        prefix = f"listener.name.{listener.lower()}."
        assert (prefix + "sasl.enabled.mechanisms" in settings) == each.protocol.startswith("SASL")
        assert (prefix + "ssl.keystore.key" in settings) == each.protocol.endswith("SSL")
        if each.protocol.endswith("SSL"):
            shown = x509.load_pem_x509_certificate(settings[prefix + "ssl.keystore.certificate.chain"].encode())
            names[listener] = list(shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    assert settings["listener.name.mtls.ssl.client.auth"] == "required"
    assert settings["listener.name.sasl_ssl.connections.max.reauth.ms"] == "1500"
    assert x509.DNSName("localhost") in names["SSL"]
    assert names["WRONG_HOST"] == [x509.DNSName("kafka.invalid")]


def test_old_brokers_find_the_validator_under_its_old_name(made: tuple[Credentials, BrokerSecurity]) -> None:
    name = "listener.name.oidc.oauthbearer.sasl.server.callback.handler.class"
    assert ".secured." in made[1].settings("3.9.1", "/keys")[name]
    assert ".secured." not in made[1].settings("4.3.1", "/keys")[name]


def test_listeners_of_ones_own_are_plaintext() -> None:
    assert protocol_map(["CONTROLLER", "MTLS", "OIDC"]) == "CONTROLLER:PLAINTEXT,MTLS:SSL,OIDC:SASL_PLAINTEXT"


# --- what clients get -------------------------------------------------------------------------------------------------


def test_every_form_of_a_clients_certificate_is_the_same_one(credentials: Credentials) -> None:
    tls = credentials.users["alice"].tls
    key = load_pem_private_key(Path(tls.key.path).read_bytes(), None)
    encrypted = load_pem_private_key(tls.encrypted_key.text.encode(), tls.key_password.encode())
    packed = pkcs12.load_pkcs12(Path(tls.pkcs12).read_bytes(), tls.key_password.encode())
    certificate = x509.load_pem_x509_certificate(tls.certificate.text.encode())
    assert certificate.subject.rfc4514_string() == "CN=alice"
    assert packed.cert is not None
    assert packed.cert.certificate == certificate
    for each in (key, encrypted, packed.key):
        assert isinstance(each, ec.EllipticCurvePrivateKey)
        assert each.public_key() == certificate.public_key()
    for file in (tls.keystore, tls.certificate):
        assert Path(file.path).read_text() == file.text
    with pytest.raises(TypeError, match="encrypted"):
        load_pem_private_key(tls.encrypted_key.text.encode(), None)


def test_what_python_loads_it_loads(credentials: Credentials) -> None:
    context = ssl.create_default_context(cafile=credentials.ca.path)
    tls = credentials.users["bob"].tls
    context.load_cert_chain(tls.keystore.path)
    context.load_cert_chain(tls.certificate.path, tls.encrypted_key.path, tls.key_password)
    context.load_verify_locations(cadata=credentials.other_ca.text)


def test_certificates_are_checked_strictly_and_have_the_faults_they_should(made: tuple[Credentials, BrokerSecurity]) -> None:
    credentials, brokers = made
    assert handshake(credentials.ca.text, brokers, "valid", "127.0.0.1") is None
    assert handshake(credentials.ca.text, brokers, "valid", "localhost") is None
    assert "expired" in str(handshake(credentials.ca.text, brokers, "expired", "localhost"))
    assert "ismatch" in str(handshake(credentials.ca.text, brokers, "wrong host", "localhost"))
    assert "verify failed" in str(handshake(credentials.other_ca.text, brokers, "valid", "localhost"))


def handshake(authority: str, brokers: BrokerSecurity, presents: Presented, host: str) -> ssl.SSLError | None:
    """What a client that trusts *authority* thinks of a broker's certificate."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with made_file(brokers.keystores[presents].certificate + brokers.keystores[presents].key) as path:
        served.load_cert_chain(path)
    context = ssl.create_default_context(cadata=authority)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(back, there, server_hostname=host)
    server = served.wrap_bio(there, back, server_side=True)
    for side in (client, server, client):
        try:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        except ssl.SSLError as failed:
            return failed
    return None


@contextlib.contextmanager
def made_file(text: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


def test_files_are_the_users_own_and_go_with_the_cluster() -> None:
    with made_for(SECURITY) as (credentials, _):
        folder = Path(credentials.directory)
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) == 2 + 4 * 5
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "users")} == {0o700}
    assert not folder.exists()


def test_users_may_be_called_as_files_are() -> None:
    with made_for(Security(users={"ca": "x", "other-ca": "y", "stranger": "z"})) as (credentials, _):
        assert len(credentials.users) == 3


# --- the cluster's face -----------------------------------------------------------------------------------------------


def test_security_of_somebody_elses_cluster_is_an_error_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCLIENT_BOOTSTRAP", "127.0.0.1:1")
    with pytest.raises(NotControllableError, match=r"security= needs brokers.*127\.0\.0\.1:1\. Unset PYCLIENT_BOOTSTRAP"):
        LocalCluster(security=Security()).open()


def test_without_the_package_for_certificates_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyclient.testing.credentials", None)
    with pytest.raises(LocalClusterError, match="pip install cryptography"):
        LocalCluster(security=Security()).open()


def test_nothing_is_left_when_brokers_do_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise LocalClusterError("no brokers today")

    monkeypatch.setattr(cluster_module, "_chosen", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cluster = LocalCluster(security=Security())
    with pytest.raises(LocalClusterError, match="no brokers today"):
        cluster.open()
    assert not list(tmp_path.iterdir())
    assert repr(cluster) == "<LocalCluster: not running>"


# --- ACLs -------------------------------------------------------------------------------------------------------------


def test_an_acl_is_about_one_resource() -> None:
    assert resource(topic="a", group=None, transactional_id=None, cluster=False, prefixed=True) == Resource("topic", "a", prefixed=True)
    assert resource(topic=None, group=None, transactional_id=None, cluster=True, prefixed=False) == Resource("cluster", "kafka-cluster")
    for wrong in ({"topic": None}, {"topic": "a", "group": "b"}):
        with pytest.raises(ValueError, match="name one of topic=, group=, transactional_id=, cluster=True"):
            resource(**{"topic": None, "group": None, "transactional_id": None, "cluster": False, "prefixed": False, **wrong})  # type: ignore[arg-type]  # names vary


@pytest.mark.parametrize(("operations", "said"), [((), "given: none"), (("WRITE", "write"), "given: write")])
def test_an_unknown_operation_is_answered_with_the_known_ones(operations: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=f"operations are ALL, READ, WRITE.*{said}"):
        grant(brokers_at(1), "bob", operations, Resource("topic", "a"))  # type: ignore[arg-type]  # what a user may write


def brokers_at(*ports: int, timeout_s: float = 5.0) -> Brokers:
    return Brokers({number: ("host", port) for number, port in enumerate(ports, 1)}, timeout_s, lambda: None)


def answering(calls: list[str], what: str, gone: int = 0, late: int = 0) -> Callable[[Address, float], None]:
    """A step that the broker at port *gone* does not answer, and the one at port *late* has not seen at first."""
    def step(address: Address, limit_s: float) -> None:
        calls.append(f"{what} {address[1]}")
        if address[1] == gone:
            raise ConnectionRefusedError
        if address[1] == late and calls.count(f"{what} {late}") < 3:
            raise NotReadyError("not yet")
    return step


def test_a_change_is_made_once_by_the_first_that_answers_and_waited_for_at_all() -> None:
    calls: list[str] = []
    brokers_at(1, 2, 3).change(answering(calls, "make", gone=1), answering(calls, "seen", gone=1, late=3))
    assert calls == ["make 1", "make 2", "seen 1", "seen 2", "seen 3", "seen 3", "seen 3"]


def test_a_change_that_never_happens_ends_with_a_timeout() -> None:
    with pytest.raises(TimeoutError, match="host:1"):
        brokers_at(1, timeout_s=0.0).change(answering([], "make", gone=1), answering([], "seen"))


class SlowBroker:
    """Accepts changes of ACLs and passwords, and reports each only at the third request."""

    def __init__(self) -> None:
        self.asked = 0
        self.rights: set[int] = set()
        self.iterations = 1

    def ask(self, _address: Address, request: Any, _answer: object, _limit_s: float) -> Any:
        kind = type(request).__name__
        if not kind.startswith("Describe"):
            self.asked, self.changed = 0, request
            return SimpleNamespace(results=(), filter_results=())
        self.asked += 1
        if self.asked == 3:
            self._apply()
        if kind == "DescribeAclsRequest":
            acls = [SimpleNamespace(operation=code) for code in self.rights]
            return SimpleNamespace(error_code=ErrorCode.none, error_message=None, resources=[SimpleNamespace(acls=acls)])
        known = [SimpleNamespace(user="bob", credential_infos=[SimpleNamespace(iterations=self.iterations)])]
        return SimpleNamespace(error_code=ErrorCode.none, error_message=None, results=known)

    def _apply(self) -> None:
        self.rights |= {each.operation for each in getattr(self.changed, "creations", ())}
        self.rights -= {each.operation for each in getattr(self.changed, "filters", ())}
        self.iterations = next((each.iterations for each in getattr(self.changed, "upsertions", ())), self.iterations)


def test_a_change_is_complete_when_a_broker_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SlowBroker()
    monkeypatch.setattr(access, "ask", broker.ask)
    changes: list[Callable[[], None]] = [
        lambda: grant(brokers_at(1), "bob", ["READ", "WRITE"], Resource("topic", "a")),
        lambda: access.revoke(brokers_at(1), "bob", ["READ"], Resource("topic", "a")),
        lambda: access.set_passwords(brokers_at(1), {"bob": "new"}),
    ]
    for change in changes:
        change()
        assert broker.asked == 3
    assert broker.rights == {4}
    assert broker.iterations >= access.FEWEST_ITERATIONS


def test_what_brokers_will_never_do_is_not_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        return SimpleNamespace(results=[SimpleNamespace(error_code=ErrorCode.security_disabled, error_message="no authorizer", user="bob")])

    monkeypatch.setattr(access, "ask", refuse)
    with pytest.raises(LocalClusterError, match=r"creating an ACL: security_disabled \(no authorizer\)"):
        grant(brokers_at(1, timeout_s=60), "bob", ["READ"], Resource("topic", "a"))
