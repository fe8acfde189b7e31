"""Builds the wheel with other interpreters and tests it there: ``.ci/interpreters.py [--smoke] [3.13 3.14 ...]``.

Each interpreter is Debian's own, in a root made with debootstrap and kept in the cache outside the checkout; those
without a GIL are compiled there, once, from the release's source package. The project's files are copied into the root;
mounts live in a namespace of their own and end with the command. Needs root on Debian. Ends with one line per
interpreter; exits 0 with one line where no root can be made.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from checkout import ROOT, copy, tracked

CACHE: Final = Path(os.environ.get("PYCLIENT_CACHE") or Path.home() / ".cache" / "pyclient") / "interpreters"
PACKAGES: Final = ("python3-dev", "python3-venv", "gcc", "libc6-dev", "ca-certificates")
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SCRIPTS: Final = Path("/usr/share/debootstrap/scripts")


class Interpreter(NamedTuple):
    """A Python of a Debian release; its version ends in ``t`` when it has no GIL."""

    version: str
    suite: str

    @property
    def root(self) -> Path:
        """The release's files; both interpreters of a release share them."""
        return CACHE / self.suite

    @property
    def home(self) -> str:
        """Where its copy of the project, its venv and its wheel are; a path inside the root."""
        return f"/pyclient/{self.version}"

    @property
    def python(self) -> str:
        """The program."""
        return f"python{self.version}"

    @property
    def pip(self) -> str:
        return f"{self.home}/venv/bin/python -m pip --disable-pip-version-check -q"


INTERPRETERS: Final = (Interpreter("3.11", "bookworm"), Interpreter("3.13", "trixie"), Interpreter("3.14", "forky"))
SMOKED: Final = ("3.13", "3.14")
"""What `--smoke` tries; the other tests of CI run on 3.11."""
SMOKE: Final = ("tests/unit/buffers", "tests/unit/codec", "tests/unit/producer", "tests/broker/test_producer.py")
FULL: Final = ("tests/unit", "tests/threads", "tests/broker/test_producer.py", "tests/broker/test_consumer.py", "tests/broker/test_groups.py",
               "tests/broker/test_admin.py")
OF_THE_CHECKOUT: Final = ("tests/unit/ci", "tests/unit/test_generated.py", "tests/unit/test_benchmarks.py", "tests/unit/integration")
"""What these test are the checkout's tools, or Spark; no wheel has them."""
PACKAGED: Final = ("pyclient/", "assignors/", "integration/", "partitioners/", "serializers/")
"""Folders of the wheel. Tests run where they are missing: programs that tests start must import the wheel, too."""
OF_THE_BUILD: Final = ("pyproject.toml", "README.md", "LICENSE", "requirements/constraints.txt")
TOOLS: Final = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist", "httpx", "setuptools", "cython", "numpy", "uvloop")
EXTRAS: Final = "arrow,testing,tls"


class NoRootError(Exception):
    """Why this machine cannot make or enter the root of another Debian release."""


class StepError(Exception):
    """What failed with an interpreter; the output above says why."""


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


def make_root(interpreter: Interpreter) -> None:
    """The root of its release; made when the cache lacks it (about a minute)."""
    if interpreter.root.is_dir():
        return
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
    half.rename(interpreter.root)


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


def run_inside(interpreter: Interpreter, what: str, *commands: str, env: Mapping[str, str] | None = None) -> None:
    """Run shell commands in the root, or raise StepError: *what* failed."""
    if inside(interpreter.root, " && ".join(commands), env):
        raise StepError(f"{what} failed")


def install_tools(interpreter: Interpreter) -> None:
    """Its venv with what builds and tests; kept while the same is asked for."""
    needs = " ".join(map(shlex.quote, TOOLS))
    inputs = (needs, EXTRAS, *((ROOT / name).read_text() for name in ("requirements/constraints.txt", "pyproject.toml")))
    mark = f"{interpreter.home}/venv/{_digest(repr(inputs).encode())}"
    if not (interpreter.root / mark.lstrip("/")).exists():
        run_inside(interpreter, "installing the tools", f"{interpreter.python} -m venv --clear {interpreter.home}/venv", f"cd {interpreter.home}/source",
                   f"{interpreter.pip} install -c requirements/constraints.txt {needs}", f"touch {mark}")


def build_wheel(interpreter: Interpreter) -> Path:
    """The wheel of this checkout, as a path of this machine; only modules that changed are compiled again."""
    home = interpreter.root / interpreter.home.lstrip("/")
    names = [name for name in tracked() if name.startswith(PACKAGED) or name in OF_THE_BUILD]
    if copy(home / "source", names):
        shutil.rmtree(home / "source" / "build", ignore_errors=True)  # it holds what has another name by now
    install_tools(interpreter)
    wheels = home / "wheels" / _digest(*(name.encode() + (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()))
    if not wheels.exists():
        say(f"Python {interpreter.version}: building the wheel")
        (home / "parallel.cfg").write_text(f"[build_ext]\nparallel = {os.cpu_count() or 1}\n")
        run_inside(interpreter, "building the wheel", f"cd {interpreter.home}/source", f"rm -rf {interpreter.home}/wheels",
                   f"{interpreter.pip} wheel --no-deps --no-build-isolation -w {interpreter.home}/wheels/half .",
                   env={"DIST_EXTRA_CONFIG": f"{interpreter.home}/parallel.cfg"})
        (home / "wheels" / "half").rename(wheels)
    (wheel,) = wheels.glob("*.whl")
    return wheel


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def install_wheel(interpreter: Interpreter, wheel: Path) -> None:
    name = f"/{wheel.relative_to(interpreter.root)}"
    run_inside(interpreter, "installing the wheel", f"cd {interpreter.home}/source",
               f'{interpreter.pip} install -c requirements/constraints.txt "{name}[{EXTRAS}]"',
               f"{interpreter.pip} install --force-reinstall --no-deps {name}")


def run_tests(interpreter: Interpreter, tests: Sequence[str]) -> None:
    """Test the installed wheel, in a copy of the checkout without its source."""
    copy(interpreter.root / interpreter.home.lstrip("/") / "tree", [name for name in tracked() if not name.startswith(PACKAGED)])
    ignored = " ".join(f"--ignore={each}" for each in OF_THE_CHECKOUT)
    say(f"Python {interpreter.version}: testing the wheel")
    run_inside(interpreter, "a test", f"cd {interpreter.home}/tree",
               f"{interpreter.home}/venv/bin/pytest -q -p no:cacheprovider -n {os.cpu_count() or 1} --dist loadfile {ignored} {' '.join(tests)}",
               env={"PYCLIENT_CACHE": "/pyclient/cache"})


def try_out(interpreter: Interpreter, tests: Sequence[str]) -> str:
    """Build and test with one interpreter; returns how it ended."""
    install_wheel(interpreter, build_wheel(interpreter))
    run_tests(interpreter, tests)
    return "passed"


# --- each in turn -----------------------------------------------------------------------------------------------------


def each_in_turn(versions: Sequence[str], work: Callable[[Interpreter], str]) -> None:
    """Do *work* with every interpreter of these versions; a failure of one does not stop the others.

    Prints how each ended; exits with 1 when one failed.
    """
    try:
        check_machine()
    except NoRootError as error:
        say(f"skipped: {error}")
        return
    ends = {interpreter.version: _end_of(interpreter, work) for interpreter in INTERPRETERS if interpreter.version in versions}
    for version, end in ends.items():
        say(f"Python {version}: {end}")
    sys.exit(any(end.startswith("FAILED") for end in ends.values()))


def _end_of(interpreter: Interpreter, work: Callable[[Interpreter], str]) -> str:
    began = time.monotonic()
    try:
        make_root(interpreter)
        end = work(interpreter)
    except NoRootError as error:
        return f"skipped: {error}"
    except StepError as error:
        end = f"FAILED: {error}"
    return f"{end} after {time.monotonic() - began:.0f} s"


def chosen_versions(named: Sequence[str], otherwise: Sequence[str] = ()) -> Sequence[str]:
    """The versions on the command line, else *otherwise*, else all."""
    known = [interpreter.version for interpreter in INTERPRETERS]
    if unknown := set(named) - set(known):
        sys.exit(f"interpreters: {', '.join(sorted(unknown))} is not one of {', '.join(known)}")
    return named or otherwise or known


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="such as 3.14 (all)")
    parser.add_argument("--smoke", action="store_true", help="the part that CI runs")
    parser.add_argument("--tests", nargs="+", help="other tests than usual")
    chosen = parser.parse_args(arguments)
    tests = chosen.tests or (SMOKE if chosen.smoke else FULL)
    each_in_turn(chosen_versions(chosen.versions, SMOKED if chosen.smoke else ()), lambda interpreter: try_out(interpreter, tests))


if __name__ == "__main__":
    main(sys.argv[1:])
