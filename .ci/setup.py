"""Bring .venv to the state the checkout asks for, doing only what changed since the last time.

Runs on any Python >= 3.11 with nothing but its standard library. Three steps, each behind a fingerprint of its inputs:
the packages (pyproject.toml, constraints), the editable install (pyproject.toml), the compiled modules (their sources).
Safe when several run at once: they take turns.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
VENV: Final = ROOT / ".venv"
PYTHON: Final = VENV / "bin" / "python"
STATE: Final = VENV / "pyclient-setup.json"
CONSTRAINTS: Final = ROOT / "requirements" / "constraints.txt"
PARALLEL: Final = ROOT / "build" / "parallel.cfg"
EXTRAS: Final = "arrow,avro,aws,jsonschema,msgspec,peers,protobuf,proxy,pydantic,registry,spark,testing"
NOISE: Final = (b"Requirement already satisfied", b"Looking in links", b"   ")
"""Lines of pip without news; on a terminal everything is shown, progress bars included."""
LOCK_WAIT_S: Final = 1800
"""Longest wait for another set-up of the same checkout: a first one may download a gigabyte on a slow line."""


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> None:
    """Run *command* in the checkout with its output shown; end the set-up when it fails."""
    words = [str(part) for part in command]
    with subprocess.Popen(
        words, cwd=ROOT, env={**os.environ, **(env or {})}, stdout=None if sys.stdout.isatty() else subprocess.PIPE
    ) as process:
        for line in process.stdout or ():
            if not line.startswith(NOISE):
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
    if process.returncode:
        sys.exit(f"setup: {' '.join(words)} failed with exit code {process.returncode}; its output is above")


def run_quietly(*command: str | Path, env: Mapping[str, str] | None = None) -> None:
    """Run *command* in the checkout; show its output only when it fails, and end the set-up then."""
    words = [str(part) for part in command]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        sys.stdout.buffer.write(done.stdout)
        sys.exit(f"setup: {' '.join(words)} failed with exit code {done.returncode}; its output is above")


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


# --- what the system must have ----------------------------------------------------------------------------------------


def missing_packages() -> list[str]:
    """Return the Debian packages that building needs and this Python lacks."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    missing = []
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append(f"{version}-dev")
    if subprocess.run([sys.executable, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode:
        missing.append(f"{version}-venv")
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        missing.append("gcc libc6-dev")
    return missing


def ensure_system_packages() -> None:
    missing = missing_packages()
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"setup: {sys.executable} cannot build compiled modules yet. As root: apt-get install {names}")
    say(f"installing {names} with apt-get")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "-qq", env=quiet)
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *names.split(), env=quiet)


# --- one at a time, only what changed ---------------------------------------------------------------------------------


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Hold the checkout's set-up lock; the kernel frees it when the holder ends, however it ends."""
    import fcntl

    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / ".setup.lock").open("w") as lock:
        deadline = time.monotonic() + LOCK_WAIT_S
        announced = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    sys.exit(f"setup: another set-up of this checkout holds build/.setup.lock for {LOCK_WAIT_S} s")
                if not announced:
                    say("another set-up of this checkout is running; waiting for it")
                    announced = True
                time.sleep(0.2)
        yield


def load_state() -> dict[str, str]:
    try:
        state: dict[str, str] = json.loads(STATE.read_text())
    except (OSError, ValueError):
        return {}
    return state


def save_state(state: Mapping[str, str]) -> None:
    fresh = STATE.with_suffix(".new")
    fresh.write_text(json.dumps(state, indent=1))
    fresh.replace(STATE)


# --- the steps --------------------------------------------------------------------------------------------------------


def venv_version() -> str | None:
    """Return the version of .venv's Python ("3.11"), None when there is none that runs."""
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([PYTHON, "-c", asked], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def ensure_venv() -> None:
    """Create .venv; replace it only when it is broken or PYTHON names another version."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    there = venv_version()
    if there == here or (there and not os.environ.get("PYTHON")):
        return
    say(f"creating .venv with Python {here}" + (f" in place of {there}" if there else ""))
    run(sys.executable, "-m", "venv", "--clear", VENV)


PIP: Final = (PYTHON, "-m", "pip", "--disable-pip-version-check")


def pip_install(*arguments: str | Path) -> None:
    run(*PIP, "install", "-c", CONSTRAINTS, *arguments)


def packages_inputs(project: Mapping[str, Any]) -> str:
    names = ("dependencies", "optional-dependencies", "requires-python")
    wanted = [project["project"].get(name) for name in names]
    return digest(wanted, project["dependency-groups"], project["build-system"], CONSTRAINTS.read_text(), venv_version())


def install_packages(project: Mapping[str, Any]) -> None:
    """Install what the project, its extras, its build and its developers need, at the versions of the constraints."""
    say("installing packages into .venv (about a gigabyte and some minutes the first time)")
    pip_install("pip", *project["build-system"]["requires"])
    own = project["project"]
    extras = [need for extra in EXTRAS.split(",") for need in own["optional-dependencies"][extra]]
    pip_install(*own["dependencies"], *extras, "--group", "dev")


def editable_inputs(project: Mapping[str, Any]) -> str:
    """What the installed metadata and import hook are made of; new modules and packages are found without."""
    own = {name: project["project"].get(name) for name in ("name", "version", "entry-points", "scripts")}
    return digest(own, project["tool"]["setuptools"]["package-dir"], venv_version())


def install_editable() -> None:
    """Install metadata and import hook. It compiles everything as well, and has no switch against that."""
    say("installing the project into .venv, editable, and compiling it")
    run_quietly(*PIP, "install", "--no-build-isolation", "--no-deps", "-e", ROOT, env={"DIST_EXTRA_CONFIG": str(PARALLEL)})


def write_parallel() -> None:
    """What makes setuptools compile on all cores, here and in `make build`."""
    PARALLEL.parent.mkdir(exist_ok=True)
    PARALLEL.write_text(f"[build_ext]\nparallel = {os.cpu_count() or 1}\n")


def compiled_sources(project: Mapping[str, Any]) -> list[Path]:
    """Return the sources of the compiled modules and every .pxd they may cimport."""
    modules = project["tool"]["setuptools"].get("ext-modules", [])
    sources = [ROOT / source for module in modules for source in (*module["sources"], *module.get("depends", ()))]
    headers = [header for folder in ("pyclient", "partitioners") for header in (ROOT / folder).rglob("*.pxd")]
    return sorted({*sources, *headers})


def compiled_inputs(project: Mapping[str, Any]) -> str:
    sources = compiled_sources(project)
    contents = [(str(path), path.read_bytes() if path.exists() else None) for path in sources]
    return digest(project["tool"]["setuptools"].get("ext-modules"), contents, venv_version())


def compiled_everything(project: Mapping[str, Any]) -> bool:
    """Whether each compiled module has its binary beside its source."""
    modules = project["tool"]["setuptools"].get("ext-modules", [])
    sources = [ROOT / module["sources"][0] for module in modules]
    return all(any(source.parent.glob(f"{source.stem}.*.so")) for source in sources)


def remove_stale_binaries(project: Mapping[str, Any]) -> None:
    """Remove the binaries of modules that are compiled no longer: Python would load them in place of the source."""
    modules = {Path(module["sources"][0]).with_suffix("") for module in project["tool"]["setuptools"].get("ext-modules", [])}
    for folder in {Path(module.parts[0]) for module in modules}:
        for binary in (ROOT / folder).rglob("*.so"):
            module = binary.with_name(binary.name.partition(".")[0])
            if module.relative_to(ROOT) not in modules:
                binary.unlink()
                module.with_suffix(".c").unlink(missing_ok=True)


def compile_modules() -> None:
    say("compiling the modules that changed")
    jobs = str(os.cpu_count() or 1)
    build = "from setuptools import setup; setup()"
    run_quietly(PYTHON, "-c", build, "build_ext", "--inplace", "--parallel", jobs)


def step(name: str, inputs: str, work: Callable[[], None]) -> bool:
    """Do *work* unless it was done for the same *inputs*; returns whether it did."""
    if load_state().get(name) == inputs:
        return False
    began = time.monotonic()
    work()
    save_state({**load_state(), name: inputs})
    say(f"{name} done in {time.monotonic() - began:.1f} s")
    return True


def bring_up_to_date() -> None:
    ensure_system_packages()
    ensure_venv()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    compiled = compiled_inputs(project)
    remove_stale_binaries(project)
    write_parallel()
    step("packages", packages_inputs(project), lambda: install_packages(project))
    if step("editable", editable_inputs(project), install_editable) and compiled_everything(project):
        save_state({**load_state(), "compiled": compiled})
    if not compiled_everything(project):
        save_state({**load_state(), "compiled": "binaries are missing"})
    step("compiled", compiled, compile_modules)


def renew_constraints() -> None:
    """Upgrade everything within pyproject.toml's bounds, then write the versions down."""
    header = [line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("#")]
    CONSTRAINTS.write_text("\n".join(header) + "\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [need for extra in EXTRAS.split(",") for need in project["project"]["optional-dependencies"][extra]]
    needs = ["pip", *project["build-system"]["requires"], *project["project"]["dependencies"], *extras]
    pip_install("--upgrade", "--upgrade-strategy=eager", *needs, "--group", "dev")
    frozen = subprocess.run([*PIP, "freeze", "--all", "--exclude-editable"], capture_output=True, text=True, check=True)
    CONSTRAINTS.write_text("\n".join([*header, frozen.stdout]))
    say(f"wrote {CONSTRAINTS.relative_to(ROOT)}; run the checks and tests, then commit it")


def main(arguments: Sequence[str]) -> None:
    with turn():
        bring_up_to_date()
        if "--lock" in arguments:
            renew_constraints()
            bring_up_to_date()


if __name__ == "__main__":
    main(sys.argv[1:])
