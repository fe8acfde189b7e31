"""TLS contexts from options: they connect, errors name option and path but no key, and changed files are read again."""
from __future__ import annotations

import contextlib
import functools
import logging
import os
import ssl
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient import Producer
from pyclient.config import ProducerConfig
from pyclient.errors import ConfigurationError, SslAuthenticationError
from pyclient.net import keystores
from pyclient.runtime.environment import Environment
from pyclient.net.keystores import as_file
from pyclient.net.security import Security
from pyclient.net.tls import TlsContexts, make_context, tls_contexts
from pyclient.testing import Certificate, CertificateAuthority
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Task, all_done
from pyclient.runtime.network import in_a_thread
from tests.reactors import idle_portal, run_in_task

SECRET: Final = "marker-secret"


@functools.cache
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@functools.cache
def client() -> Certificate:
    return authority().issue()


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap_servers": "localhost:9092", "security_protocol": "SSL", **options})


def made(**options: Any) -> ssl.SSLContext:
    return make_context(config(**options))


class HandshakeFailedError(Exception):
    """The handshake failed."""


def shaken(context: ssl.SSLContext, server: ssl.SSLContext, host: str = "localhost") -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Shake hands in memory. Raises HandshakeFailedError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = context.wrap_bio(to_client, to_server, server_hostname=host)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (ours, theirs):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                raise HandshakeFailedError(error.reason) from error
    return ours, theirs


def subject(of: ssl.SSLObject) -> Any:
    return dict(part[0] for part in (of.getpeercert() or {})["subject"])["commonName"]  # type: ignore[misc] # as ssl gives it


@functools.cache
def wants_clients() -> ssl.SSLContext:
    return authority().server_context(clients=authority())


def wrong(**options: Any) -> ConfigurationError:
    """The error, which shows no secret."""
    with pytest.raises(ConfigurationError) as caught:
        made(**options)
    text = str(caught.value) + repr(caught.value) + repr(caught.value.__cause__)
    assert SECRET not in text
    for key in (value for value in options.values() if isinstance(value, str) and "PRIVATE" in value):
        assert key.splitlines()[1] not in text
    return caught.value


# ---- whom to trust --------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    def write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


Stored = Callable[[str, "str | bytes"], str]


def test_the_truststore_is_a_file_or_a_text_also_with_words_around_the_certificates(stored: Stored) -> None:
    other = CertificateAuthority()
    text = f"Überschrift\n{other.pem}\nmehr\n{authority().pem}"
    for options in ({"ssl_truststore_certificates": text}, {"ssl_truststore_location": stored("ca.pem", text)}):
        ours, _ = shaken(made(**options), authority().server_context())
        assert ours.getpeercert()
        shaken(made(**options), other.server_context())
        with pytest.raises(HandshakeFailedError, match="CERTIFICATE_VERIFY_FAILED"):
            shaken(made(**options), CertificateAuthority().server_context())


def test_a_folder_of_hashed_certificates_is_a_truststore(tmp_path: Path) -> None:
    (tmp_path / "9d66eef0.0").write_text(authority().pem)
    made(ssl_truststore_location=str(tmp_path))


def test_without_a_truststore_the_systems_authorities_are_trusted_and_ours_is_not() -> None:
    assert made().verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(HandshakeFailedError):
        shaken(made(), authority().server_context())


def test_every_certificate_in_the_truststore_is_trusted_even_if_it_is_no_root() -> None:
    between = CertificateAuthority("between", signed_by=authority())
    shown = between.issue("localhost")
    for trusted in (authority().pem, between.pem, Certificate(shown.certificate, shown.private_key).chain):
        shaken(made(ssl_truststore_certificates=trusted), authority().server_context(certificate=shown))


def test_a_pkcs12_truststore_is_read_with_its_password(stored: Stored) -> None:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    content = pkcs12.serialize_key_and_certificates(None, None, None, [authority().certificate], BestAvailableEncryption(SECRET.encode()))
    path = stored("trust.p12", content)
    shaken(made(ssl_truststore_location=path, ssl_truststore_type="PKCS12", ssl_truststore_password=SECRET), authority().server_context())
    error = wrong(ssl_truststore_location=path, ssl_truststore_type="PKCS12", ssl_truststore_password="other")
    assert "ssl_truststore_password) is wrong" in str(error)
    assert path in str(error)
    assert error.option == "ssl_truststore_location"


@pytest.mark.parametrize("missing", ["", "ssl_truststore_location", "ssl_keystore_location"])
def test_pkcs12_without_cryptography_names_the_extra(stored: Stored, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    path = stored("store.p12", client().pkcs12(SECRET))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    if not missing:
        made(ssl_truststore_certificates=authority().pem)  # nothing else needs it
        return
    error = wrong(**{missing: path, missing.replace("location", "type"): "PKCS12", missing.replace("location", "password"): SECRET})
    assert "pip install 'pyclient-kafka[tls]'" in str(error)


@pytest.mark.parametrize("store", ["truststore", "keystore"])
def test_a_jks_store_is_refused_with_the_line_that_converts_it(stored: Stored, store: str) -> None:
    path = stored("old.jks", b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    for kind in ("JKS", "PEM", "PKCS12"):
        error = wrong(**{f"ssl_{store}_location": path, f"ssl_{store}_type": kind})
        assert f"keytool -importkeystore -srckeystore {path} -destkeystore {path.removesuffix('.jks')}.p12 -deststoretype PKCS12" in str(error)
        assert f"ssl_{store}_type=PKCS12" in str(error)


@pytest.mark.parametrize(("password", "needed"), [
    ("ssl_truststore_password", "ssl_truststore_location"), ("ssl_keystore_password", "ssl_keystore_location"),
    ("ssl_key_password", "ssl_keystore_location"),
])
def test_a_password_without_its_store_or_key_is_refused(password: str, needed: str) -> None:
    error = wrong(**{password: SECRET})
    assert error.option == password
    assert f"{password} is set, but {needed} is not" in str(error)


def test_a_store_of_another_type_is_named_as_what_it_is(stored: Stored) -> None:
    assert "set ssl_keystore_type=PKCS12" in str(wrong(ssl_keystore_location=stored("a.p12", client().pkcs12(SECRET)), ssl_keystore_password=SECRET))
    assert "set the type to PEM" in str(wrong(ssl_keystore_location=stored("a.pem", client().chain), ssl_keystore_type="PKCS12"))


FILES: Final = ("ssl_truststore_location", "ssl_keystore_location", "ssl_certificate_location", "ssl_crl_location")


@pytest.mark.parametrize("option", FILES)
@pytest.mark.parametrize(("content", "said"), [
    (None, "cannot be read: No such file"), (b"", "contains no complete"), (b"\x00\x01 no text", "contains no complete"), (b"-----BEGIN CERTIFICATE-----\ncut", "contains no complete"),
])
def test_a_file_that_is_missing_or_damaged_is_named_with_its_option(stored: Stored, option: str, content: bytes | None, said: str) -> None:
    path = stored("given", content) if content is not None else "/nowhere/given"
    error = wrong(**{option: path})
    assert said in str(error)
    assert path in str(error)
    assert error.option == option


def test_damage_within_a_certificate_is_found(stored: Stored) -> None:
    lines = authority().pem.splitlines()
    damaged = "\n".join([*lines[:3], lines[3][:-8] + "AAAAAAAA", *lines[4:6], lines[-1]])
    assert "a certificate in it is damaged" in str(wrong(ssl_truststore_certificates=damaged))
    whole = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"
    assert "is truncated" in str(wrong(ssl_crl_location=stored("crl", whole + whole[:30])))
    assert "a revocation list in it is damaged" in str(wrong(ssl_crl_location=stored("crl", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")))


def test_a_file_that_cannot_hold_certificates_is_not_read_to_its_end() -> None:
    if Path("/dev/zero").exists():
        assert "more than" in str(wrong(ssl_truststore_location="/dev/zero"))


def test_a_revoked_certificate_is_refused_and_another_one_is_not(stored: Stored) -> None:
    bad, good = authority().issue("localhost"), authority().issue("localhost")
    options = {"ssl_truststore_certificates": authority().pem, "ssl_crl_location": stored("crl.pem", authority().revoked(bad))}
    shaken(made(**options), authority().server_context(certificate=good))
    with pytest.raises(HandshakeFailedError, match="CERTIFICATE_VERIFY_FAILED"):
        shaken(made(**options), authority().server_context(certificate=bad))


def test_the_empty_algorithm_switches_off_the_check_of_the_name_only() -> None:
    strict = {"ssl_truststore_certificates": authority().pem}
    lax = {**strict, "ssl_endpoint_identification_algorithm": ""}
    elsewhere = authority().server_context("elsewhere.example")
    with pytest.raises(HandshakeFailedError):
        shaken(made(**strict), elsewhere)
    shaken(made(**lax), elsewhere)
    with pytest.raises(HandshakeFailedError):
        shaken(made(**lax), CertificateAuthority().server_context("elsewhere.example"))


def test_a_common_name_is_no_host_name() -> None:
    """An authority checks the names in subjectAltName; what it signs as common name may be anything (RFC 9525)."""
    shown = authority().issue(common_name="localhost")
    assert not made().hostname_checks_common_name
    with pytest.raises(HandshakeFailedError):
        shaken(made(ssl_truststore_certificates=authority().pem), authority().server_context(certificate=shown))


# ---- who the client is ----------------------------------------------------------------------------------------------


def identities(stored: Stored) -> Iterator[dict[str, str]]:
    one = client()
    between = CertificateAuthority("between", signed_by=authority()).issue()
    rsa = authority().issue(key="rsa")
    yield {"ssl_keystore_location": stored("both.pem", one.key + one.chain)}
    yield {"ssl_keystore_location": stored("chain.pem", between.chain + between.key)}
    yield {"ssl_keystore_location": stored("locked.pem", one.chain + one.encrypted_key(SECRET)), "ssl_key_password": SECRET}
    yield {"ssl_keystore_location": stored("both.p12", one.pkcs12(SECRET)), "ssl_keystore_type": "PKCS12", "ssl_keystore_password": SECRET}
    yield {"ssl_keystore_location": stored("chain.p12", between.pkcs12(None)), "ssl_keystore_type": "PKCS12"}
    yield {"ssl_keystore_location": stored("rsa.p12", rsa.pkcs12(SECRET)), "ssl_keystore_type": "PKCS12", "ssl_keystore_password": SECRET}
    yield {"ssl_certificate_location": stored("c.pem", one.chain), "ssl_key_location": stored("k.pem", one.key)}
    yield {"ssl_certificate_location": stored("c.pem", one.chain), "ssl_key_location": stored("e.pem", one.encrypted_key(SECRET)), "ssl_key_password": SECRET}
    yield {"ssl_certificate_location": stored("cb.pem", one.chain + one.key)}
    yield {"ssl_keystore_certificate_chain": one.chain, "ssl_keystore_key": one.key}
    yield {"ssl_keystore_certificate_chain": one.chain, "ssl_keystore_key": one.encrypted_key(SECRET), "ssl_key_password": SECRET}
    yield {"ssl_keystore_certificate_chain": one.chain, "ssl_key_location": stored("k2.pem", one.key)}
    yield {"ssl_keystore_certificate_chain": one.chain, "ssl_keystore_key": one.key, "ssl_key_password": "not needed"}


@pytest.mark.parametrize("memory", [True, False], ids=["in memory", "through a file"])
def test_every_way_to_give_a_certificate_and_its_key_shows_it_to_the_broker(stored: Stored, monkeypatch: pytest.MonkeyPatch, memory: bool) -> None:
    if not memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    count = 0
    for options in identities(stored):
        _, theirs = shaken(made(ssl_truststore_certificates=authority().pem, **options), wants_clients())
        assert subject(theirs) == "pyclient test"
        count += 1
    assert count == 13


def test_a_temporary_key_file_is_readable_by_its_owner_only_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with as_file(b"content") as path:
        assert Path(path).read_bytes() == b"content"
        assert Path(path).stat().st_mode & 0o777 == 0o600
        assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    assert not Path(path).parent.exists()
    with contextlib.suppress(ZeroDivisionError), as_file(b"content") as path:
        raise ZeroDivisionError
    assert not Path(path).parent.exists()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files in memory")
def test_a_file_in_memory_is_not_inherited_and_closed_afterwards() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with as_file(b"content") as path:
        assert path.startswith("/proc/self/fd/")
        assert Path(path).read_bytes() == b"content"
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_encrypted_key_without_a_password_is_an_error_and_no_question_on_the_terminal(stored: Stored, capfd: pytest.CaptureFixture[str]) -> None:
    path = stored("locked.pem", client().chain + client().encrypted_key(SECRET))
    error = wrong(ssl_keystore_location=path)
    assert "encrypted and ssl_key_password is not set" in str(error)
    assert path in str(error)
    assert capfd.readouterr() == ("", "")


def test_a_wrong_password_a_foreign_key_and_a_missing_half_are_distinguished(stored: Stored) -> None:
    one, other = client(), authority().issue()
    chain = {"ssl_keystore_certificate_chain": one.chain}
    assert "ssl_key_password is wrong" in str(wrong(**chain, ssl_keystore_key=one.encrypted_key(SECRET), ssl_key_password="wrong"))
    assert "does not belong to the certificate of ssl_keystore_certificate_chain" in str(wrong(**chain, ssl_keystore_key=other.key))
    path = stored("foreign.pem", authority().issue(key="rsa").key)
    error = wrong(**chain, ssl_key_location=path)
    assert f"ssl_key_location = {path!r}: the key does not belong" in str(error)
    assert "without its certificate" in str(wrong(ssl_key_location=path))
    assert "it contains no complete private key" in str(wrong(**chain))
    assert "contains no complete certificate" in str(wrong(ssl_certificate_location=path))
    p12 = stored("only.p12", one.pkcs12(SECRET))
    assert "ssl_keystore_password) is wrong" in str(wrong(ssl_keystore_location=p12, ssl_keystore_type="PKCS12", ssl_keystore_password="x"))


@pytest.mark.parametrize(("options", "said"), [
    ({"ssl_truststore_location": "/a", "ssl_truststore_certificates": "b"}, "ssl_truststore_location and ssl_truststore_certificates are two ways"),
    ({"ssl_keystore_location": "/a", "ssl_key_location": "/b"}, "ssl_keystore_location and ssl_key_location are two ways"),
    ({"ssl_keystore_key": "a", "ssl_key_location": "/b"}, "ssl_key_location and ssl_keystore_key are two ways"),
    ({"ssl_enabled_protocols": "TLSv1.1,TLSv1.2"}, "choose from TLSv1.2, TLSv1.3"),
    ({"ssl_enabled_protocols": ""}, "choose from TLSv1.2, TLSv1.3"),
    ({"ssl_enabled_protocols": "TLSv1.3", "ssl_protocol": "TLSv1.2"}, "no version is left"),
    ({"ssl_cipher_suites": "NO-SUCH-SUITE"}, "OpenSSL has no suite NO-SUCH-SUITE"),
    ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "TLS_AES_128_GCM_SHA256 cannot be selected. OpenSSL selects TLS 1.3 suites"),
    ({"ssl_cipher_suites": "!ALL,!HIGH"}, "leaves no suite"),
    ({"ssl_context": ssl.create_default_context(), "ssl_crl_location": "/a"}, "ssl_context replaces every other ssl_ option; leave out ssl_crl_location"),
    ({"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "a server context"),
])
def test_contradictory_options_are_refused(options: dict[str, Any], said: str) -> None:
    assert said in str(wrong(**options))


@pytest.mark.parametrize("store", ["truststore", "keystore"])
def test_a_password_of_a_pem_store_is_refused(stored: Stored, store: str) -> None:
    path = stored("store.pem", client().chain + client().key)
    error = wrong(**{f"ssl_{store}_location": path, f"ssl_{store}_password": SECRET})
    assert f"ssl_{store}_password is set, but a PEM store has no password" in str(error)


# ---- versions and suites --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "spoken"), [
    ({}, "TLSv1.3"), ({"ssl_protocol": "TLSv1.2"}, "TLSv1.2"), ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1.2"),
    ({"ssl_enabled_protocols": "TLSv1.3"}, "TLSv1.3"), ({"ssl_protocol": "TLS"}, "TLSv1.3"),
])
def test_the_offered_tls_versions_are_those_of_the_option(options: dict[str, str], spoken: str) -> None:
    ours, _ = shaken(made(ssl_truststore_certificates=authority().pem, **options), authority().server_context())
    assert ours.version() == spoken


def test_a_broker_with_the_other_version_only_is_refused() -> None:
    old = authority().server_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    shaken(made(ssl_truststore_certificates=authority().pem), old)
    with pytest.raises(HandshakeFailedError):
        shaken(made(ssl_truststore_certificates=authority().pem, ssl_enabled_protocols="TLSv1.3"), old)


def test_suites_are_chosen_for_tls_1_2_and_left_alone_in_1_3() -> None:
    name = "ECDHE-ECDSA-CHACHA20-POLY1305"
    chosen = {"ssl_truststore_certificates": authority().pem, "ssl_cipher_suites": name}
    ours, _ = shaken(made(**chosen, ssl_protocol="TLSv1.2"), authority().server_context())
    assert (ours.cipher() or ("",))[0] == name
    ours, _ = shaken(made(**chosen), authority().server_context())
    assert (ours.cipher() or ("",))[0].startswith("TLS_")


def test_a_brokers_renegotiation_request_is_refused() -> None:
    assert made().options & ssl.OP_NO_RENEGOTIATION


def test_the_names_of_other_clients_mean_the_same(stored: Stored) -> None:
    ca, chain, key = stored("ca.pem", authority().pem), stored("c.pem", client().chain), stored("k.pem", client().encrypted_key(SECRET))
    for options in (
        {"ssl.truststore.location": ca, "ssl.keystore.certificate.chain": client().chain, "ssl.keystore.key": client().key},
        {"ssl.ca.location": ca, "ssl.certificate.location": chain, "ssl.key.location": key, "ssl.key.password": SECRET},
        {"ssl.ca.pem": authority().pem, "ssl.certificate.pem": client().chain, "ssl.key.pem": client().key},
        {"ssl_cafile": ca, "ssl_certfile": chain, "ssl_keyfile": key, "ssl_password": SECRET, "ssl_check_hostname": True},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shaken(made(**options), wants_clients())


# ---- clients --------------------------------------------------------------------------------------------------------


def test_wrong_options_are_raised_when_the_client_is_created() -> None:
    with pytest.raises(ConfigurationError, match="ssl_truststore_location = '/nowhere'"):
        Producer(bootstrap_servers="localhost:9092", security_protocol="SSL", ssl_truststore_location="/nowhere")


def test_tls_options_without_tls_are_reported_as_unused(caplog: pytest.LogCaptureFixture) -> None:
    assert tls_contexts(config(security_protocol="PLAINTEXT", ssl_truststore_location="/a"), Environment(), idle_portal().reactor) is None
    assert "which does not encrypt; these options are ignored: ssl_truststore_location" in caplog.text
    caplog.clear()
    assert tls_contexts(config(security_protocol="PLAINTEXT"), Environment(), idle_portal().reactor) is None
    assert not caplog.records


def test_a_brokers_certificate_may_change_though_the_clients_options_do_not() -> None:
    protection = Security(tls_contexts(config(ssl_truststore_certificates=authority().pem), Environment(), idle_portal().reactor))
    for cause, may_change in ((ssl.SSLCertVerificationError("expired"), True), (ssl.SSLError("alert"), False), (None, False)):
        refusal = SslAuthenticationError("no")
        refusal.__cause__ = cause
        assert protection.may_change(refusal) is may_change


def test_whether_credentials_can_change_is_known(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(authority().pem)

    def may_change(**options: Any) -> bool:
        return TlsContexts(config(**options), Environment(), idle_portal().reactor).may_change

    assert may_change(ssl_context=ssl.create_default_context())
    assert may_change(ssl_truststore_location=str(tmp_path / "ca.pem"))
    assert not may_change(ssl_truststore_certificates=authority().pem)
    assert not may_change()
    assert TlsContexts(config(ssl_context=ssl.create_default_context()), Environment(), idle_portal().reactor).has_identity is None
    assert TlsContexts(config(), Environment(), idle_portal().reactor).has_identity is False


# ---- files that change ----------------------------------------------------------------------------------------------


class Mounted:
    """Secrets as Kubernetes mounts them: the name leads through a link to a folder, which is swapped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.path = folder / "tls.pem"
        self.path.symlink_to(Path("..data") / "tls.pem")

    def put(self, content: str) -> None:
        self._count += 1
        version = self._folder / f"..{self._count}"
        version.mkdir()
        (version / "tls.pem").write_text(content)
        os.utime(version / "tls.pem", ns=(1, 1))  # the times show no change
        swap = self._folder / "..swap"
        swap.symlink_to(version.name)
        swap.replace(self._folder / "..data")


def test_a_swapped_link_is_seen_by_the_next_connection(tmp_path: Path) -> None:
    other = CertificateAuthority()
    mounted = Mounted(tmp_path)
    mounted.put(authority().pem)

    async def steps(reactor: Reactor) -> None:
        contexts = TlsContexts(config(ssl_truststore_location=str(mounted.path)), Environment(), reactor)
        first = await contexts.current()
        assert await contexts.current() is first
        mounted.put(other.pem)
        second = await contexts.current()
        assert second is not first
        shaken(second, other.server_context())
        assert await contexts.current() is second
        contexts.close()

    run_in_task(steps)


def test_a_half_written_file_keeps_the_old_context_and_warns_once_until_it_is_complete(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "both.pem"
    path.write_text(client().chain + client().key)
    renewed = authority().issue(common_name="renewed")

    async def steps(reactor: Reactor) -> None:
        contexts = TlsContexts(config(ssl_truststore_certificates=authority().pem, ssl_keystore_location=str(path)), Environment(), reactor)
        first = await contexts.current()
        path.write_text(renewed.chain)
        for _ in range(3):
            assert await contexts.current() is first
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 1
        assert "it contains no complete private key" in warnings[0].getMessage()
        path.write_text(renewed.chain + client().key)
        assert await contexts.current() is first
        path.unlink()
        assert await contexts.current() is first
        assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 3
        path.write_text(renewed.chain + renewed.key)
        _, theirs = shaken(await contexts.current(), wants_clients())
        assert subject(theirs) == "renewed"
        contexts.close()

    run_in_task(steps)


def test_a_failed_read_is_repeated_even_if_the_file_looks_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of files are coarse: the second half of a file may come within the same tick."""
    path = tmp_path / "ca.pem"
    path.write_text(authority().pem)

    async def steps(reactor: Reactor) -> None:
        contexts = TlsContexts(config(ssl_truststore_location=str(path)), Environment(), reactor)
        first = await contexts.current()
        path.write_text(authority().pem + "\n")
        with monkeypatch.context() as patch:
            patch.setattr("pyclient.net.tls.make_context", lambda _: 1 / 0)
            assert await contexts.current() is first
        assert await contexts.current() is not first
        contexts.close()

    run_in_task(steps)


def test_a_changed_file_is_read_once_in_a_worker_for_all_waiting_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    path = tmp_path / "ca.pem"
    path.write_text(authority().pem)
    began, go_on, threads = threading.Event(), threading.Event(), []

    def slow(given: Any) -> ssl.SSLContext:
        threads.append(threading.current_thread())
        began.set()
        assert go_on.wait(10)
        return make_context(given)

    async def steps(reactor: Reactor) -> None:
        contexts = TlsContexts(config(ssl_truststore_location=str(path)), Environment(), reactor)
        first = await contexts.current()
        monkeypatch.setattr("pyclient.net.tls.make_context", slow)
        path.write_text(authority().pem + "\n")
        waiting = [Task(reactor, contexts.current()) for _ in range(3)]
        await in_a_thread(reactor, lambda: began.wait(10))
        waiting[0].cancel()
        go_on.set()
        await all_done(reactor, waiting)
        assert waiting[0].cancelled()
        assert waiting[1].result() is waiting[2].result() is not first
        assert len(threads) == 1
        assert threads[0] is not threading.current_thread()
        contexts.close()

    run_in_task(steps)


def test_no_repr_shows_a_key(stored: Stored) -> None:
    source = keystores.Source("ssl_keystore_key")
    identity = keystores.Identity(client().chain.encode(), client().key.encode(), SECRET, source, source)
    shown = repr(identity) + repr(TlsContexts(config(ssl_keystore_certificate_chain=client().chain, ssl_keystore_key=client().key), Environment(), idle_portal().reactor))
    assert "PRIVATE" not in shown
    assert SECRET not in shown


@pytest.mark.parametrize("option", ["ssl_truststore_location", "ssl_keystore_location", "ssl_crl_location"])
def test_a_path_that_is_too_long_is_an_error_like_any_other(option: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read") as caught:
        made(**{option: "a" * 5000})
    assert caught.value.option == option


def other() -> CertificateAuthority:
    return CertificateAuthority("another")


def test_a_truncated_file_is_not_used_in_part(tmp_path: Path) -> None:
    store = tmp_path / "store.pem"
    store.write_text(authority().pem + other().pem[:200])
    with pytest.raises(ConfigurationError, match="is truncated"):
        made(ssl_truststore_location=str(store))
    between = CertificateAuthority("between", signed_by=authority()).issue()
    store.write_text(between.key + between.chain[:-100])
    with pytest.raises(ConfigurationError, match="is truncated"):
        made(ssl_keystore_location=str(store))


def test_a_truncated_file_leaves_the_client_its_context(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = tmp_path / "ca.pem"
    store.write_text(authority().pem + other().pem)

    async def test(reactor: Reactor) -> None:
        contexts = tls_contexts(config(ssl_truststore_location=str(store)), Environment(), reactor)
        assert contexts is not None
        first = await contexts.current()
        store.write_text(authority().pem + other().pem[:200])
        assert await contexts.current() is first
        store.write_text(authority().pem)
        assert await contexts.current() is not first
        contexts.close()

    run_in_task(test)
    assert "still being written" in caplog.text


def test_a_keystore_that_begins_with_another_certificate_is_refused_with_the_expected_order(tmp_path: Path) -> None:
    store = tmp_path / "store.pem"
    store.write_text(authority().pem + client().chain + client().key)
    with pytest.raises(ConfigurationError, match="the client's own certificate must be the first"):
        made(ssl_keystore_location=str(store))


def test_a_folder_without_hashes_is_raised_when_the_client_is_made(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(authority().pem)
    with pytest.raises(ConfigurationError, match="openssl rehash") as caught:
        made(ssl_truststore_location=str(tmp_path))
    assert caught.value.option == "ssl_truststore_location"


def test_the_error_for_a_PKCS12_file_without_its_password_names_the_option(tmp_path: Path) -> None:
    store = tmp_path / "store.p12"
    store.write_bytes(client().pkcs12(SECRET))
    with pytest.raises(ConfigurationError, match="ssl_keystore_password is not set"):
        made(ssl_keystore_location=str(store), ssl_keystore_type="PKCS12")
