"""Builds the wheel with other interpreters and tests it there: ``.ci/interpreters.py [--smoke] [3.13 3.14 ...]``.

Each interpreter is Debian's own, in a root made with debootstrap and kept in the cache outside the checkout; those
without a GIL are compiled there, once, from the release's source package. The project's files are copied into the root;
mounts live in a namespace of their own and end with the command. Needs root on Debian. Ends with one line per
interpreter; exits 0 with one line where no root can be made.

``--smoke`` compiles without optimization, from the C that Cython wrote for this checkout, and runs few tests.
"""
from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from checkout import ROOT, copy, copy_file, tracked

CACHE: Final = Path(os.environ.get("PYCLIENT_CACHE") or Path.home() / ".cache" / "pyclient") / "interpreters"
PACKAGES: Final = ("python3-dev", "python3-venv", "gcc", "libc6-dev", "ca-certificates")
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT: Final = "DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Acquire::Check-Valid-Until=false"
"""In a root, whose lists may be old."""
SCRIPTS: Final = Path("/usr/share/debootstrap/scripts")


class Interpreter(NamedTuple):
    """A Python of a Debian release; its version ends in ``t`` when it has no GIL."""

    version: str
    suite: str
    has_every_package: bool = True
    """Whether the packages that tests need exist for it; few do for the newest, and without a GIL."""
    is_smoked: bool = False
    """Only the part that CI runs: compiled without optimization, which takes a third of the time, with few packages."""

    @property
    def root(self) -> Path:
        """The release's files; both interpreters of a release share them."""
        return CACHE / self.suite

    @property
    def home(self) -> str:
        """Where its copy of the project and its venv are; a path inside the root."""
        return f"/pyclient/{self.version}"

    @property
    def made(self) -> str:
        """Where objects and wheels are; a path inside the root. What was not optimized stays apart."""
        return f"{self.home}/{'smoked' if self.is_smoked else 'optimized'}"

    @property
    def compiler(self) -> str:
        """What compiles C; the last of several levels of optimization counts."""
        return 'exec gcc "$@" -O0' if self.is_smoked else 'exec gcc "$@"'

    @property
    def is_free_threaded(self) -> bool:
        return self.version.endswith("t")

    @property
    def python(self) -> str:
        """The program; a path inside the root."""
        return f"/opt/python{self.version}/bin/python{self.version}" if self.is_free_threaded else f"/usr/bin/python{self.version}"

    @property
    def extras(self) -> str:
        """What tests need of the wheel's extras."""
        if self.is_smoked:
            return f"[{SMOKE_EXTRAS}]"
        return f"[{EXTRAS}]" if self.has_every_package else ""

    @property
    def tools(self) -> str:
        """What tests and the build need beside the wheel, as words of a shell."""
        return " ".join(map(shlex.quote, TOOLS if self.has_every_package and not self.is_smoked else FEW_TOOLS))

    @property
    def pip(self) -> str:
        return f"{self.home}/venv/bin/python -m pip --disable-pip-version-check -q"

    @property
    def constrained_pip_install(self) -> str:
        """Of the versions that CI tests with, but numpy's last for 3.11 is older than 3.15; for 3.13t see `OLDER`."""
        changes = OLDER if self.version == "3.13t" else ('/^numpy==/s/$/; python_version < "3.15"/',)
        return f"sed {' '.join(f'-e {shlex.quote(each)}' for each in changes)} requirements/constraints.txt >constraints.txt && {self.pip} install -c constraints.txt"


INTERPRETERS: Final = (Interpreter("3.11", "bookworm"), Interpreter("3.13", "trixie"), Interpreter("3.14", "forky"),
                       Interpreter("3.15", "forky", has_every_package=False), Interpreter("3.14t", "forky", has_every_package=False),
                       Interpreter("3.13t", "trixie", has_every_package=False))
"""3.13t is tested beside 3.14t because more archives serve its source."""
OLDER: Final = ("s/^hypothesis==.*/hypothesis<6.140/", "s/^pyarrow==.*/pyarrow<25/", "s/^cramjam==.*/cramjam==2.11.0/")
"""The last that 3.13t can have: later ones begin with 3.14t, or need Rust to be built."""
NATIVE_KIO: Final = ("tests/unit/codec/test_entities.py", "tests/unit/codec/test_messages.py", "tests/unit/codec/test_produce_request.py")
"""They compare with kio's part in Rust, which 3.13t has not. The client uses the other part only."""
NEWER_CRAMJAM: Final = ("test_every_level_of_a_codec_is_readable", "test_the_framings_of_other_clients_are_read")
"""Of LZ4 some cases fail with cramjam 2.11, with a GIL too."""
SMOKED: Final = ("3.14", "3.13")
"""What `--smoke` tries; the other tests of CI run on 3.11."""
SMOKE: Final = ("tests/unit/buffers", "tests/unit/codec/test_round_trip.py", "tests/threads/test_signals.py")
FULL: Final = ("tests/unit", "tests/threads", "tests/broker/test_producer.py", "tests/broker/test_consumer.py", "tests/broker/test_groups.py",
               "tests/broker/test_admin.py")
FEW_PACKAGES: Final = ("tests/threads", "tests/unit/buffers", "tests/unit/codec")
"""What runs without many packages: what has locks, and what is compiled."""
SEEDS: Final = "0:50"
"""What `tests/threads` sweep unless PYCLIENT_THREADS_SEEDS says otherwise."""
OF_THE_CHECKOUT: Final = ("tests/unit/ci", "tests/unit/test_generated.py", "tests/unit/test_benchmarks.py", "tests/unit/test_named_pages.py",
                           "tests/unit/integration")
"""What these test are the checkout's tools and pages, or Spark; no wheel has them."""
PACKAGED: Final = ("pyclient/", "assignors/", "integration/", "partitioners/", "serializers/")
"""Folders of the wheel. Tests run where they are missing: programs that tests start must import the wheel, too."""
OF_THE_BUILD: Final = ("pyproject.toml", "README.md", "LICENSE", "requirements/constraints.txt")
FEW_TOOLS: Final = ("setuptools", "cython", "pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "numpy", "pyarrow")
TOOLS: Final = (*FEW_TOOLS, "httpx", "orjson", "uvloop")
SOURCE_PACKAGES: Final = ("dpkg-dev", "make", "xz-utils", "zlib1g-dev", "libssl-dev", "libffi-dev", "libsqlite3-dev", "libbz2-dev", "liblzma-dev")
"""What compiling a Python needs."""
EXTRAS: Final = "arrow,avro,aws,jsonschema,msgspec,peers,protobuf,proxy,pydantic,registry,testing,tls"
"""All but Spark and Kerberos."""
SMOKE_EXTRAS: Final = "arrow,testing"


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


def machine_suits() -> bool:
    """Whether roots can be made here; if not, says why in one line."""
    try:
        check_machine()
    except NoRootError as error:
        say(f"skipped: {error}")
        return False
    return True


def check_machine() -> None:
    """Raise NoRootError unless debootstrap can work here; install it when it is missing."""
    if os.geteuid() or shutil.which("apt-get") is None:
        raise NoRootError("this needs root on Debian")
    if subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise NoRootError("mounts are not permitted here, as in some containers")
    if shutil.which("debootstrap") is None:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        patient = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]  # another program may be installing
        for command in ([*patient, "update"], [*patient, "install", "-y", "--no-install-recommends", "debootstrap"]):
            done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoRootError(f"debootstrap cannot be installed: {done.stderr.splitlines()[-1:]}")


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


def install_python(interpreter: Interpreter) -> None:
    """The release's packages of this Python, in the root. `make_root` brings only the release's default."""
    if (interpreter.root / interpreter.python.lstrip("/")).exists():
        return
    name = f"python{interpreter.version}"
    say(f"installing {name} of {interpreter.suite}")
    if inside(interpreter.root, f"{APT} update && {APT} install --no-install-recommends {name}-dev {name}-venv"):
        raise NoRootError(f"the archive does not serve {name} of {interpreter.suite}")


def compile_python(interpreter: Interpreter) -> None:
    """A Python without a GIL, from the release's source package, in the root's /opt; once, in five minutes.

    Debian's patches are left out: with them a venv does not find its packages under the name of such an interpreter.
    """
    if (interpreter.root / interpreter.python.lstrip("/")).exists():
        return
    source = f"python{interpreter.version.removesuffix('t')}"
    (interpreter.root / "etc/apt/sources.list.d/source.list").write_text(f"deb-src {archive()} {interpreter.suite} main\n")
    say(f"compiling {source} of {interpreter.suite} without a GIL")
    place = f"/pyclient/{source}-source"
    if inside(interpreter.root, f"{APT} update && {APT} install --no-install-recommends {' '.join(SOURCE_PACKAGES)} && "
                                f"rm -rf {place} && mkdir -p {place} && cd {place} && {APT} source --download-only {source}"):
        raise NoRootError(f"the archive does not serve the source of {source} of {interpreter.suite}")
    prefix = f"/opt/python{interpreter.version}"
    run_inside(interpreter, f"compiling {source}", f"cd {place}", "dpkg-source --skip-patches -x *.dsc source >/dev/null", "cd source",
               f"./configure -q --prefix={prefix} --disable-gil --disable-test-modules", f"make -s -j{os.cpu_count() or 1} >/dev/null 2>&1",
               f"make -s altinstall DESTDIR={place}/half >/dev/null", f"mv {place}/half{prefix} /opt/", f"rm -rf {place}")


def inside(root: Path, command: str, env: Mapping[str, str] | None = None) -> int:
    """Run a shell command in the root, with this machine's network and package settings."""
    mounts = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev", f"mount --rbind /sys {root}/sys"]
    for kept in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/etc/pip.conf"):
        mounts += _mount(root, Path(kept), Path(kept))
    mounts += _mount(root, Path(os.environ.get("PIP_FIND_LINKS", "/nowhere")), Path(os.environ.get("PIP_FIND_LINKS", "/nowhere")))
    mounts += _mount(root, _pip_cache(), Path("/root/.cache/pip"))
    for tools in (".cargo", ".rustup"):
        mounts += _mount(root, Path.home() / tools, Path("/root") / tools)
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
        if place.is_symlink():  # it may end outside the root
            place.unlink()
        place.touch()
    return [f"mount --bind {source.resolve()} {place}"]


# --- the project in a root --------------------------------------------------------------------------------------------


def run_inside(interpreter: Interpreter, what: str, *commands: str, env: Mapping[str, str] | None = None) -> None:
    """Run shell commands in the root, or raise StepError: *what* failed."""
    if inside(interpreter.root, " && ".join(commands), env):
        raise StepError(f"{what} failed")


def install_tools(interpreter: Interpreter) -> None:
    """Its venv with what builds and tests. It is kept: where Cython's files are new, every module is compiled again."""
    inputs = (interpreter.tools, *((ROOT / name).read_text() for name in ("requirements/constraints.txt", "pyproject.toml")))
    mark = f"{interpreter.home}/venv/{_digest(repr(inputs).encode())}"
    if not (interpreter.root / mark.lstrip("/")).exists():
        try:
            run_inside(interpreter, "installing the tools", f"test -x {interpreter.home}/venv/bin/pip || {interpreter.python} -m venv {interpreter.home}/venv",
                       f"cd {interpreter.home}/source", f"{interpreter.constrained_pip_install} {interpreter.tools}", f"touch {mark}")
        except StepError as error:
            if interpreter.is_smoked:
                raise NoRootError("pip reaches no packages from within it") from error
            raise
    if interpreter.version == "3.13t":
        install_what_has_no_wheel(interpreter)


def install_what_has_no_wheel(interpreter: Interpreter) -> None:
    """For 3.13t cramjam is compiled, once, in eight minutes; of kio the files that need no interpreter of their own."""
    kept = "/pyclient/cramjam"
    build = f"{interpreter.pip} wheel --no-deps -w {kept} cramjam==2.11.0"
    if inside(interpreter.root, f"PATH=$PATH:/root/.cargo/bin; ls {kept}/cramjam-*cp313t*.whl >/dev/null 2>&1 || (command -v cargo >/dev/null && {build})"):
        raise NoRootError("cramjam cannot be compiled for it: most likely this machine has no cargo")
    run_inside(interpreter, "installing cramjam and kio", f"cd {interpreter.home}/source", f"{interpreter.pip} install {kept}/cramjam-*cp313t*.whl",
               f"{interpreter.pip} install --no-deps --upgrade --only-binary=:all: --implementation cp --python-version 3.13 --abi cp313 "
               f"--platform manylinux_2_28_x86_64 --target {interpreter.home}/venv/lib/python3.13t/site-packages $(grep ^kio== requirements/constraints.txt)")


def build_wheel(interpreter: Interpreter) -> Path:
    """The wheel of this checkout, as a path of this machine; only modules that changed are compiled again."""
    home, made = (interpreter.root / place.lstrip("/") for place in (interpreter.home, interpreter.made))
    names = [name for name in tracked() if name.startswith(PACKAGED) or name in OF_THE_BUILD]
    if copy(home / "source", names):
        shutil.rmtree(made / "build", ignore_errors=True)  # it holds what has another name by now
    for name in written_by_cython():
        copy_file(ROOT / name, home / "source" / name)
    install_tools(interpreter)
    wheels = made / "wheels" / _digest(*(name.encode() + (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()))
    if not wheels.exists():
        say(f"Python {interpreter.version}: building the wheel{' without optimization' if interpreter.is_smoked else ''}")
        made.mkdir(exist_ok=True)
        (made / "build.cfg").write_text(f"[build]\nbuild_base = {interpreter.made}/build\n[build_ext]\nparallel = {os.cpu_count() or 1}\n")
        (made / "cc").write_text(f"#!/bin/sh\n{interpreter.compiler}\n")
        (made / "cc").chmod(0o755)
        run_inside(interpreter, "building the wheel", f"cd {interpreter.home}/source", f"rm -rf {interpreter.made}/wheels",
                   f"{interpreter.pip} wheel --no-deps --no-build-isolation -w {interpreter.made}/wheels/half .",
                   env={"DIST_EXTRA_CONFIG": f"{interpreter.made}/build.cfg", "CC": f"{interpreter.made}/cc"})
        (made / "wheels" / "half").rename(wheels)
    (wheel,) = wheels.glob("*.whl")
    return wheel


def written_by_cython() -> list[str]:
    """The C files of this checkout that are newer than what they are made of. They are the same for every Python."""
    modules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    shared = max((ROOT / name).stat().st_mtime for name in tracked() if name.endswith(".pxd"))
    sources = [Path(module["sources"][0]) for module in modules]
    return [str(source.with_suffix(".c")) for source in sources if _mtime(source.with_suffix(".c")) > max(_mtime(source), shared)]


def _mtime(name: Path) -> float:
    return (ROOT / name).stat().st_mtime if (ROOT / name).exists() else 0


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def install_wheel(interpreter: Interpreter, wheel: Path) -> None:
    name = f"/{wheel.relative_to(interpreter.root)}"
    run_inside(interpreter, "installing the wheel", f"cd {interpreter.home}/source",
               f"{interpreter.constrained_pip_install} {wanted(interpreter, name)}",
               f"{interpreter.pip} install --force-reinstall --no-deps {name}")


def wanted(interpreter: Interpreter, wheel: str) -> str:
    """The wheel with what it depends on, as words of a shell; for 3.13t only that, without what it has already."""
    if interpreter.version != "3.13t":
        return shlex.quote(wheel + interpreter.extras)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return shlex.join(each for each in needed if not each.startswith(("cramjam", "kio")))


def run_tests(interpreter: Interpreter, tests: Sequence[str]) -> None:
    """Test the installed wheel, in a copy of the checkout without its source."""
    copy(interpreter.root / interpreter.home.lstrip("/") / "tree", [name for name in tracked() if not name.startswith(PACKAGED)])
    ignored = " ".join(f"--ignore={each}" for each in OF_THE_CHECKOUT)
    if interpreter.version == "3.13t":
        ignored += "".join([f" --ignore={each}" for each in NATIVE_KIO] + [f" --deselect=tests/unit/codec/test_compression.py::{each}" for each in NEWER_CRAMJAM])
    gil = {"PYTHON_GIL": "0"} if interpreter.is_free_threaded else {}  # cramjam would bring it back
    say(f"Python {interpreter.version}: testing the wheel")
    run_inside(interpreter, "a test", f"cd {interpreter.home}/tree", f"{interpreter.home}/venv/bin/python .ci/wheel_smoke.py",
               f"{interpreter.home}/venv/bin/pytest -q -p no:cacheprovider -n {os.cpu_count() or 1} --dist loadfile {ignored} {' '.join(tests)}",
               env={**gil, "PYCLIENT_CACHE": "/pyclient/cache", "PYCLIENT_THREADS_SEEDS": os.environ.get("PYCLIENT_THREADS_SEEDS", SEEDS)})


def try_out(interpreter: Interpreter, tests: Sequence[str]) -> str:
    """Build and test with one interpreter, by these tests or those it has; returns how it ended."""
    install_wheel(interpreter, build_wheel(interpreter))
    run_tests(interpreter, tests or (FULL if interpreter.has_every_package else FEW_PACKAGES))
    return "passed"


# --- each in turn -----------------------------------------------------------------------------------------------------


def each_in_turn(versions: Sequence[str], work: Callable[[Interpreter], str]) -> None:
    """Do *work* with every interpreter of these versions; a failure of one does not stop the others.

    Prints how each ended; exits with 1 when one failed.
    """
    ends = {version: _end_of(_named(version), work) for version in versions}
    for version, end in ends.items():
        say(f"Python {version}: {end}")
    sys.exit(any(end.startswith("FAILED") for end in ends.values()))


def _end_of(interpreter: Interpreter, work: Callable[[Interpreter], str]) -> str:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{interpreter.suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another checkout of this machine may be at work in the root
        return _end_alone(interpreter, work)


def _end_alone(interpreter: Interpreter, work: Callable[[Interpreter], str]) -> str:
    began = time.monotonic()
    try:
        make_root(interpreter)
        (compile_python if interpreter.is_free_threaded else install_python)(interpreter)
        end = work(interpreter)
    except NoRootError as error:
        return f"skipped: {error}"
    except StepError as error:
        end = f"FAILED: {error}"
    return f"{end} after {time.monotonic() - began:.0f} s"


def _named(version: str) -> Interpreter:
    return next(interpreter for interpreter in INTERPRETERS if interpreter.version == version)


def smoked_versions() -> Sequence[str]:
    """SMOKED, but a run of CI makes one root at most: it must stay short on a new machine, too."""
    missing = [version for version in SMOKED if not _named(version).root.is_dir()]
    for version in missing[1:]:
        say(f"Python {version}: left to the next run; this one makes a root for {missing[0]}")
    return [version for version in SMOKED if version not in missing[1:]]


def chosen_versions(named: Sequence[str]) -> Sequence[str]:
    """The versions on the command line, else all."""
    known = [interpreter.version for interpreter in INTERPRETERS]
    if unknown := set(named) - set(known):
        sys.exit(f"interpreters: {', '.join(sorted(unknown))} is not one of {', '.join(known)}")
    return named or known


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="such as 3.14 (all)")
    parser.add_argument("--smoke", action="store_true", help="the part that CI runs")
    parser.add_argument("--tests", nargs="+", help="other tests than usual")
    chosen = parser.parse_args(arguments)
    tests = chosen.tests or (SMOKE if chosen.smoke else ())
    named = chosen_versions(chosen.versions)
    if machine_suits():
        versions = smoked_versions() if chosen.smoke and not chosen.versions else named
        each_in_turn(versions, lambda interpreter: try_out(interpreter._replace(is_smoked=chosen.smoke), tests))


if __name__ == "__main__":
    main(sys.argv[1:])
