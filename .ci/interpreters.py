"""Builds the wheel with other interpreters and tests it there: ``.ci/interpreters.py [--smoke] [3.13 3.14 ...]``.

Each interpreter is Debian's own, in a root made with debootstrap and kept in the cache outside the checkout. The
project's files are copied into the root; mounts live in a namespace of their own and end with the command. Needs root
on Debian. Ends with one line per interpreter; exits 0 with one line where no root can be made.
"""
from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
CACHE: Final = Path(os.environ.get("PYCLIENT_CACHE") or Path.home() / ".cache" / "pyclient") / "interpreters"
PACKAGES: Final = ("python3-dev", "python3-venv", "gcc", "libc6-dev", "ca-certificates")
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SCRIPTS: Final = Path("/usr/share/debootstrap/scripts")
VENV: Final = "/pyclient/venv"
TREE: Final = "/pyclient/tree"
WHEELS: Final = "/pyclient/wheels"


class Interpreter(NamedTuple):
    """A Python of a Debian release."""

    version: str
    suite: str


INTERPRETERS: Final = (Interpreter("3.13", "trixie"), Interpreter("3.14", "forky"))
SMOKE: Final = ("tests/unit/buffers", "tests/unit/codec", "tests/unit/producer", "tests/broker/test_producer.py")
FULL: Final = ("tests/unit", "tests/threads", "tests/broker/test_producer.py", "tests/broker/test_consumer.py", "tests/broker/test_groups.py",
               "tests/broker/test_admin.py")
OF_THE_CHECKOUT: Final = ("tests/unit/ci", "tests/unit/test_generated.py", "tests/unit/test_benchmarks.py", "tests/unit/integration")
"""What these test are the checkout's tools, or Spark; no wheel has them."""
PACKAGED: Final = ("pyclient", "assignors", "integration", "partitioners", "serializers")
"""Folders of the wheel. They are removed before the tests: programs that tests start must import the wheel, too."""
TOOLS: Final = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist", "httpx", "setuptools", "cython", "numpy", "uvloop")
EXTRAS: Final = "arrow,testing,tls"


class NoRootError(Exception):
    """Why this machine cannot make or enter the root of another Debian release."""


def say(text: str) -> None:
    print(f"interpreters: {text}", flush=True)


# --- roots ------------------------------------------------------------------------------------------------------------


def archive() -> str:
    """The address of the Debian archive that this machine installs from."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    if not found:
        raise NoRootError("apt-get knows no archive")
    return found[0]


def check_machine() -> None:
    """Raise NoRootError unless debootstrap can work here; install it when it is missing."""
    if os.geteuid() or shutil.which("apt-get") is None:
        raise NoRootError("this needs root on Debian")
    if shutil.which("debootstrap") is None:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "debootstrap"]):
            if subprocess.run(command, env=quiet, capture_output=True, check=False).returncode:
                raise NoRootError("debootstrap cannot be installed")


def root_of(interpreter: Interpreter) -> Path:
    """The root of its release; made when the cache lacks it (about a minute)."""
    root = CACHE / interpreter.suite
    if root.is_dir():
        return root
    say(f"making a root of {interpreter.suite} for Python {interpreter.version}")
    half = CACHE / f"{interpreter.suite}.{os.getpid()}"
    script = SCRIPTS / interpreter.suite
    command = ["debootstrap", "--variant=minbase", f"--keyring={KEYRING}", f"--include={','.join(PACKAGES)}", interpreter.suite, str(half),
               archive(), str(script if script.exists() else SCRIPTS / "sid")]
    half.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        shutil.rmtree(half, ignore_errors=True)
        raise NoRootError(f"debootstrap of {interpreter.suite} failed: {done.stdout.splitlines()[-1:]}")
    half.rename(root)
    return root


def inside(root: Path, command: str, env: Mapping[str, str] | None = None) -> int:
    """Run a shell command in the root, with this machine's network and package settings."""
    mounts = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev", f"mount --rbind /sys {root}/sys"]
    for kept in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/etc/pip.conf"):
        mounts += _mount(root, Path(kept), Path(kept))
    mounts += _mount(root, Path(os.environ.get("PIP_FIND_LINKS", "/nowhere")), Path(os.environ.get("PIP_FIND_LINKS", "/nowhere")))
    mounts += _mount(root, _pip_cache(), Path("/root/.cache/pip"))
    script = " && ".join([*mounts, f"exec chroot {root} /bin/sh -c {shlex.quote(command)}"])
    return subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script], env={**os.environ, "HOME": "/root", **(env or {})}, check=False).returncode


def _pip_cache() -> Path:
    cache = Path.home() / ".cache" / "pip"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _mount(root: Path, source: Path, target: Path) -> list[str]:
    """Commands that show *source*, a file or folder of this machine, at *target* in the root; none if it is missing."""
    place = root / target.relative_to("/")
    if not source.exists():
        return []
    if source.is_dir():
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # often a link that ends outside the root
        place.touch()
    return [f"mount --bind {source.resolve()} {place}"]


# --- the project in a root --------------------------------------------------------------------------------------------


def tracked() -> list[str]:
    """The project's files; some may be deleted in the checkout."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and os.path.lexists(ROOT / name)]


def copy_project(root: Path) -> None:
    """A copy of the checkout in the root, without what was there before."""
    tree = root / TREE.lstrip("/")
    shutil.rmtree(tree, ignore_errors=True)
    for name in tracked():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)


def prepare(root: Path) -> str:
    """Shell commands that install the tools and the wheel of this checkout; what has not changed is kept."""
    needs = " ".join(map(shlex.quote, TOOLS))
    constraints = (ROOT / "requirements" / "constraints.txt").read_text()
    mark = hashlib.sha256(repr((needs, EXTRAS, constraints, (ROOT / "pyproject.toml").read_text())).encode()).hexdigest()[:16]
    pip = f"{VENV}/bin/python -m pip --disable-pip-version-check -q"
    sources = hashlib.sha256(b"".join(name.encode() + (ROOT / name).read_bytes() for name in tracked() if _is_packaged(name) and (ROOT / name).is_file())).hexdigest()[:16]
    return " && ".join([
        f"cd {TREE}",
        f"(test -e {VENV}/{mark} || (python3 -m venv --clear {VENV} && {pip} install -c requirements/constraints.txt {needs} && touch {VENV}/{mark}))",
        f"(test -d {WHEELS}/{sources} || (rm -rf {WHEELS} && {pip} wheel --no-deps --no-build-isolation -w {WHEELS}/half . && mv {WHEELS}/half {WHEELS}/{sources}))",
        f'for wheel in {WHEELS}/{sources}/*.whl; do {pip} install -c requirements/constraints.txt "$wheel[{EXTRAS}]" && {pip} install --force-reinstall --no-deps $wheel; done',
        f"rm -rf {' '.join(PACKAGED)}"])


def _is_packaged(name: str) -> bool:
    """Whether a change of the file may change the wheel."""
    return name.startswith(tuple(f"{folder}/" for folder in PACKAGED)) or name in ("pyproject.toml", "README.md")


def run_tests(tests: Sequence[str]) -> str:
    """The shell command that tests the installed wheel."""
    ignored = " ".join(f"--ignore={each}" for each in OF_THE_CHECKOUT)
    return f"cd {TREE} && {VENV}/bin/pytest -q -p no:cacheprovider -n {os.cpu_count() or 1} --dist loadfile {ignored} {' '.join(tests)}"


def try_out(interpreter: Interpreter, tests: Sequence[str]) -> str:
    """Build and test with one interpreter; returns how it ended."""
    root = root_of(interpreter)
    copy_project(root)
    (root / TREE.lstrip("/") / "parallel.cfg").write_text(f"[build_ext]\nparallel = {os.cpu_count() or 1}\n")
    say(f"Python {interpreter.version}: building the wheel")
    if inside(root, prepare(root), {"DIST_EXTRA_CONFIG": f"{TREE}/parallel.cfg"}):
        return "the wheel could not be built or installed"
    say(f"Python {interpreter.version}: testing the wheel")
    return "tests failed" if inside(root, run_tests(tests), {"PYCLIENT_CACHE": "/pyclient/cache"}) else "passed"


def main(arguments: Sequence[str]) -> None:
    """Try every interpreter named, or all; a failure of one does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(each.version for each in INTERPRETERS)} (all)")
    parser.add_argument("--smoke", action="store_true", help="the part that CI runs")
    parser.add_argument("--tests", nargs="+", help="other tests than usual")
    chosen = parser.parse_args(arguments)
    try:
        check_machine()
        ends = {}
        for interpreter in INTERPRETERS:
            if not chosen.versions or interpreter.version in chosen.versions:
                began = time.monotonic()
                end = try_out(interpreter, chosen.tests or (SMOKE if chosen.smoke else FULL))
                ends[interpreter.version] = f"{end} after {time.monotonic() - began:.0f} s"
    except NoRootError as error:
        say(f"skipped: {error}")
        return
    for version, end in ends.items():
        say(f"Python {version}: {end}")
    sys.exit(any("passed" not in end for end in ends.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
