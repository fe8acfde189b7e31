"""A Kerberos realm for one test: a KDC on a free port of this machine, with database and keytabs in a temporary folder.

Needs MIT's KDC (`make test-kerberos` installs it). Names are not resolved by DNS: brokers at 127.0.0.1 are
kafka/127.0.0.1.
"""
from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pyclient.testing.process_guard import ProcessGuard, kill_group
from pyclient.testing.ports import release_ports, reserve_ports
from tests.waiting import eventually

REALM: Final = "PYCLIENT.TEST"
HOST: Final = "127.0.0.1"
SERVICE: Final = f"kafka/{HOST}"
"""The principal of brokers there."""
LIMIT_S: Final = 30.0
_CLIENTS: Final = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_realm = false
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
 clockskew = 1
 permitted_enctypes = aes256-cts-hmac-sha1-96
[realms]
 {realm} = {{
  kdc = {host}:{port}
 }}
[domain_realm]
 {host} = {realm}
 localhost = {realm}
"""
_KDC: Final = """\
[kdcdefaults]
 kdc_listen = {host}:{port}
 kdc_tcp_listen = {host}:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principals
  key_stash_file = {folder}/stash
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
 }}
"""
_JAAS: Final = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true doNotPrompt=true "
    'keyTab="{keytab}" principal="{principal}@{realm}";'
)


class Realm(NamedTuple):
    """A running one."""

    folder: Path
    leash: ProcessGuard

    @property
    def config(self) -> Path:
        """The ``krb5.conf`` of clients and brokers."""
        return self.folder / "krb5.conf"

    def keytab(self, name: str) -> Path:
        """Make a principal, and give the file with its key."""
        path = self.folder / f"{name.replace('/', '-')}.keytab"
        for query in (f"addprinc -randkey {name}", f"ktadd -k {path} {name}"):
            self.run("kadmin.local", "-r", REALM, "-q", query)
        assert path.exists(), "kadmin.local ends with 0 whatever it did"
        return path

    def ticket(self, name: str, keytab: Path, cache: Path, *, life: str = "1h") -> Path:
        """What the user's `kinit` does: a cache with a ticket."""
        self.run("kinit", "-c", f"FILE:{cache}", "-l", life, "-k", "-t", str(keytab), name)
        return cache

    def is_good(self, cache: Path, service: str) -> bool:
        """Whether the ticket in the cache still opens something."""
        return self._run("kvno", "-c", f"FILE:{cache}", service).returncode == 0

    def run(self, *command: str) -> None:
        """Run one of Kerberos' programs in this realm; fail with what it says."""
        done = self._run(*command)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(found(command), env=os.environ | self.environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def environment(self) -> dict[str, str]:
        """Configures this realm for MIT's programs and library, and for Java."""
        return {
            "KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={self.config}",
        }


def jaas(keytab: Path, principal: str) -> str:
    """How a Java program, a broker too, logs in to Kerberos."""
    return _JAAS.format(keytab=keytab, principal=principal, realm=REALM)


def found(command: tuple[str, ...]) -> list[str]:
    """The program with its path: Debian keeps those of the KDC where users do not look."""
    path = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    assert path is not None, f"{command[0]} is not installed: run make test-kerberos, which says what is missing"
    return [path, *command[1:]]


@contextlib.contextmanager
def realm() -> Iterator[Realm]:
    """Start a KDC; at the end it and its folder are gone."""
    (port,) = reserve_ports(1)
    leash = ProcessGuard("kerberos")
    try:
        made = Realm(leash.directory, leash)
        values = {"realm": REALM, "host": HOST, "port": port, "folder": made.folder}
        made.config.write_text(_CLIENTS.format(**values))
        (made.folder / "kdc.conf").write_text(_KDC.format(**values))
        made.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        kdc = _started_kdc(made)
        try:
            eventually(lambda: kdc.poll() is not None or _answers(port), LIMIT_S)
            assert kdc.poll() is None, (made.folder / "kdc.log").read_text()
            yield made
        finally:
            kill_group(kdc)
    finally:
        leash.close()
        release_ports((port,))


def _started_kdc(made: Realm) -> subprocess.Popen[bytes]:
    with (made.folder / "kdc.log").open("ab") as output:
        return made.leash.start(found(("krb5kdc", "-n")), output=output, env=os.environ | made.environment())


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
        return True
    return False
