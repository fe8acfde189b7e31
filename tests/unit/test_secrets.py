"""The search for secrets finds what a test shows, wherever it does, also in the processes of pytest-xdist; it shows
none itself."""
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distribution import ROOT
from tests.secrets import MARKER, shown_in

HEAD = f"""
import logging, os, subprocess, sys, threading, warnings
import pytest
from pyclient.config import ProducerConfig
from pyclient.errors import KafkaError

SECRET = {MARKER[:6]!r} + {MARKER[6:]!r}
"""
WAYS = {
    "print": "print(SECRET)",
    "stderr": "print(SECRET, file=sys.stderr)",
    "a program": "subprocess.run([sys.executable, '-c', f'print({SECRET!r})'], check=True)",
    "a log": "logging.getLogger('any').warning('%s', SECRET)",
    "a log of no handler's level": "logging.getLogger('pyclient.any').setLevel(10); logging.getLogger('pyclient.any').debug('x', extra={}) or logging.getLogger('pyclient.any').debug('%r', {'a': SECRET})",
    "a log's exception": "try:\n        raise ValueError(SECRET)\n    except ValueError:\n        logging.getLogger('any').exception('failed')",
    "a thread": "thread = threading.Thread(target=logging.getLogger('any').error, args=(SECRET,)); thread.start(); thread.join()",
    "an expected error": "with pytest.raises(KafkaError):\n        raise KafkaError(f'no such login: {SECRET}')",
    "a warning": "warnings.warn(SECRET)",
    "a token": "print('eyJhbGciOiJub25lIn0' + '.eyJzdWIiOiJhbm5hIiwiZXhwIjo0MTAyNDQ0ODAwfQ.')",
    "a key": "print('-----BEGIN PRIVATE' + ' KEY-----\\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49')",
}
LATE = """
class Late:
    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self):
        logging.getLogger("any").error(SECRET)

def test_it(request):
    request.config.pluginmanager.register(Late())
"""
QUIET = {
    "nothing": "pass",
    "a secret that is kept": "assert ProducerConfig.parse({'sasl_plain_password': SECRET}).sasl_plain_password == SECRET",
    "a hidden one": "print(ProducerConfig.parse({'sasl_plain_password': SECRET}))",
}


def ran(folder: Path, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What a session with one test says."""
    (folder / "conftest.py").write_text(
        "from tests.secrets import Search\n\ndef pytest_configure(config):\n    config.pluginmanager.register(Search(), 'searched')\n")
    (folder / "test_it.py").write_text(f"{HEAD}\n{body}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *options, str(folder / "test_it.py")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_whatever_shows_a_secret_fails_the_test_in_which_it_does(tmp_path: Path) -> None:
    body = "\n\n".join(f"def test_{number}():\n    {way}" for number, way in enumerate({**WAYS, **QUIET}.values()))
    done = ran(tmp_path, body)
    outcomes = next(line for line in done.stdout.splitlines() if line.endswith("[100%]")).split()[0]
    assert outcomes[len(WAYS):] == "." * len(QUIET)
    # (a warning is reported after its test: it fails the session, below)
    assert [name for name, outcome in zip(WAYS, outcomes, strict=False) if outcome != "F"] == ["a warning"]
    assert done.returncode == 1


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
@pytest.mark.parametrize("body", ["def test_it():\n    warnings.warn(SECRET)", LATE], ids=["a warning", "after the last test"])
def test_what_shows_outside_of_tests_fails_the_session(tmp_path: Path, options: tuple[str, ...], body: str) -> None:
    if options and importlib.util.find_spec("xdist") is None:
        pytest.skip("pytest-xdist is not installed")
    done = ran(tmp_path, body, *options)
    assert "1 passed" in done.stdout
    assert done.returncode == 1
    assert "a secret shows in a" in done.stdout


def test_a_session_that_shows_none_passes(tmp_path: Path) -> None:
    body = "\n\n".join(f"def test_{number}():\n    {way}" for number, way in enumerate(QUIET.values()))
    assert ran(tmp_path, body).returncode == 0
    assert ran(tmp_path, body, "-n", "1").returncode == 0


def test_the_search_shows_no_secret_itself() -> None:
    place = shown_in(f"a password {MARKER} and another {MARKER}.")
    assert place == "…a password [secret] and another [secret].…"
    assert shown_in("nothing") is None
