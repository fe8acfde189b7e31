"""What holds for every test: where helpers are imported from, which build runs, which tests run on which brokers, and
that no secret shows.

Helpers are imported by their path from the checkout: ``from tests.reference_codec import ...``.
"""
from __future__ import annotations

import contextlib
import importlib.machinery
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests.distribution import Distribution

ROOT: Final = Path(__file__).resolve().parent.parent
ON_CONTAINERS: Final = os.environ.get("PYCLIENT_BROKERS") == "container"
WITH_KERBEROS: Final = os.environ.get("PYCLIENT_KERBEROS") == "1"

# A test is not wrong because the machine is busy: examples have no deadline of their own.
hypothesis.settings.register_profile(
    "pyclient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("pyclient")

# A shell that runs the suite in the background has it ignore Ctrl-C, and every program it starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# --- imports ---------------------------------------------------------------------------------------------------------


def offer_folders_of_the_checkout(*names: str) -> None:
    """Make folders importable that are not installed, without putting the checkout on sys.path.

    (There ``partitioners`` and the other mapped folders would become importable under a second name.)
    """
    for name in names:
        module = ModuleType(name)
        module.__path__ = [str(ROOT / name)]
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        module.__spec__.submodule_search_locations = module.__path__
        sys.modules.setdefault(name, module)


offer_folders_of_the_checkout("tests", "benchmarks", "examples", "tools")
from tests.twins import PURE, use_twins  # noqa: E402 importable from here on

if PURE:
    use_twins()


# --- what users install ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Distribution:
    """The wheel and sdist of this checkout; one build for all workers of a parallel run."""
    from tests.distribution import built

    base = tmp_path_factory.getbasetemp()
    parallel = hasattr(request.config, "workerinput")
    return built((base.parent if parallel else base) / "distribution")


@pytest.fixture(scope="session")
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's contents, to be put in front of the path: what a user has in site-packages.

    With ``PYCLIENT_DIST=checkout`` (`make test`) it is a copy of the checkout, since building the wheel takes minutes.
    """
    from tests.distribution import FROM_CHECKOUT, copied, run

    folder = tmp_path_factory.mktemp("installed")
    if FROM_CHECKOUT:
        copied(folder)
        return folder
    distribution: Distribution = request.getfixturevalue("distribution")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(distribution.wheel))
    return folder


# --- one failure stays one ------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Close the producers that a failed test left open: their threads and warnings would fail tests after it."""
    from pyclient.runtime.process_hooks import _exit_hooks

    before = set(_exit_hooks)
    try:
        return (yield)
    except BaseException:
        for left in set(_exit_hooks) - before:
            with contextlib.suppress(Exception):
                cast("Any", _exit_hooks[left]).close(0)
        raise


# --- what needs more than Python and Java ----------------------------------------------------------------------------


LEFT_OUT: Final = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--repeat", type=int, default=1, help="run each test this many times (make flaky EACH=20)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if (times := metafunc.config.getoption("--repeat")) > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(times))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "embedded: about the embedded JVM itself; left out when brokers are containers")
    config.addinivalue_line("markers", "containers: needs a Docker engine; all tests under tests/containers do")
    config.addinivalue_line("markers", "extended: `make test` leaves it to `make test-all`; given by tests/levels.py")
    config.addinivalue_line("markers", "proof: takes many minutes; only `make proof` runs it")
    from tests.secrets import Search

    config.pluginmanager.register(Search(), "pyclient-secrets")


CI_ENDS: Final = float(os.environ.get("PYCLIENT_CI_ENDS", "inf"))
"""When CI's time is over, in seconds since the epoch."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """On a slow machine CI leaves some tests out at the end; .ci/closing.py counts them."""
    from tests.levels import left_to_nightly

    if time.time() > CI_ENDS and left_to_nightly(item.nodeid):
        pytest.skip("CI's time is over: left to `make nightly`")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Beside its results a run leaves its exit code, which make hides: .ci/junit.py reads it."""
    results = session.config.getoption("xmlpath", None)
    if results and not hasattr(session.config, "workerinput"):
        Path(results).with_suffix(".exit").write_text(str(int(exitstatus)))


def pytest_report_header() -> list[str]:
    return [f"pyclient: {'pure Python twins' if PURE else 'compiled'}"]


@pytest.hookimpl(tryfirst=True)  # before -m reads the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from tests.levels import is_extended

    if hasattr(config, "workerinput"):
        sort_for_workers(items)
    for item in items:
        if is_extended(item.nodeid):
            item.add_marker(pytest.mark.extended)
    leave_out_kerberos(config, items)
    if ON_CONTAINERS:
        leave_out(config, items, [item for item in items if item.get_closest_marker("embedded")])
        return
    from pyclient.testing.engine import engine_answers

    needy = [item for item in items if needs_containers(item)]
    if needy and not engine_answers():
        leave_out(config, items, needy)
        config.stash.setdefault(LEFT_OUT, []).append(
            f"{len(needy)} container tests skipped: no Docker engine answers at "
            f"{os.environ.get('DOCKER_HOST') or 'its usual place'}; `bash .ci/docker.sh` installs and starts one."
        )


def sort_for_workers(items: list[pytest.Item]) -> None:
    """With xdist files are taken in this order, see `tests.levels.order`; tests of a file keep theirs."""
    from tests.levels import order

    clusters: dict[Path, str] = {}
    for item in items:
        if "kafka_cluster" in getattr(item, "fixturenames", ()):
            clusters.setdefault(item.path, repr(item.get_closest_marker("kafka")))
    items.sort(key=lambda item: order(item.nodeid, clusters.get(item.path, "")))


@pytest.hookimpl(optionalhook=True, tryfirst=True)  # before xdist's own answer
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Divide the tests as --dist loadfile does, but for files that share expensive clusters."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it has no types

    from tests.levels import together

    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = together
    return scheduler


def leave_out_kerberos(config: pytest.Config, items: list[pytest.Item]) -> None:
    """They have a command of their own, which installs a KDC; where it runs them they run, or fail."""
    needy = [item for item in items if item.nodeid.startswith("tests/kerberos/")]
    if needy and not WITH_KERBEROS:
        leave_out(config, items, needy)
        config.stash.setdefault(LEFT_OUT, []).append(f"{len(needy)} Kerberos tests left out: `make test-kerberos` installs what they need and runs them.")


def needs_containers(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/containers/") or item.get_closest_marker("containers") is not None


def leave_out(config: pytest.Config, items: list[pytest.Item], unwanted: list[pytest.Item]) -> None:
    """Deselect, not skip: what cannot mean anything here is one line, not hundreds."""
    gone = set(unwanted)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=unwanted)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(LEFT_OUT, []):
        terminalreporter.write_line(line, yellow=True)
