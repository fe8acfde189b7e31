"""What may stand in nothing that is shown, and the search of everything that a session of tests shows.

`Search` is a plugin of pytest. It looks at captured output of tests, fixtures and the programs that they start, at
every log record and warning, at the messages of all of our errors that are made, expected ones too, and at tests' own
ids. A test in which a secret shows fails; what shows outside of tests fails the session. Works in the processes of
pytest-xdist too.
"""
from __future__ import annotations

import functools
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

MARKER: Final = "marker-secret"
"""Stands in every password, token or other secret that a test makes up."""
OTHERS: Final = ("marker secret", "marker:secret", "alice-secret", "bob-secret", "key-secret", "anna's secret", "hunter2", "s3cr")
"""Secrets that are so by other rights: what `pyclient.testing` gives users by default, documentation's, secrets of odd
characters."""
_SECRET: Final = re.compile("|".join([
    *map(re.escape, (MARKER, *OTHERS)),
    r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*",  # a token (JWT)
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(\s|\\n)*[A-Za-z0-9+/=]{16}",
]))
_AROUND: Final = 80


def shown_in(text: str) -> str | None:
    """The place in *text* where a secret shows, without the secret; None where there is none."""
    found = _SECRET.search(text)
    if found is None:
        return None
    before, after = text[max(0, found.start() - _AROUND):found.start()], text[found.end():found.end() + _AROUND]
    return _SECRET.sub("[secret]", f"…{before}[secret]{after}…")


def assert_no_local_shows(error: BaseException, *secrets: str) -> None:
    """No local variable of a frame of *error*, its causes or its contexts shows one of *secrets*.

    Frames of tests do not count: a test knows its secrets.
    """
    frames = [frame for each in _with_causes(error) for frame, _ in traceback.walk_tb(each.__traceback__)
              if not _is_of_tests(frame.f_code.co_filename)]
    shown = [f"{frame.f_code.co_filename}:{frame.f_lineno} {name}" for frame in frames for name, value in frame.f_locals.items()
             if any(secret in _repr_of(value) for secret in secrets)]
    assert not shown, shown


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen[id(each)] = each
            waiting += [each.__cause__, each.__context__]
    return iter(seen.values())


def _is_of_tests(path: str) -> bool:
    return Path(path).is_relative_to(Path(__file__).parent)


def _repr_of(value: object) -> str:
    try:
        return repr(value) + ("" if isinstance(value, (str, bytes)) else str(value))
    except Exception as failure:  # noqa: BLE001 whatever a repr raises
        return f"repr raised {failure!r}"


class _Records(logging.Handler):
    """Looks at every log record, as text and with its exception."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        super().__init__(level=0)
        self._report = report
        self._format = logging.Formatter("%(name)s %(message)s %(threadName)s").format

    def emit(self, record: logging.LogRecord) -> None:
        """Called by whatever thread logs."""
        self._report("a log record", self._format(record) + repr(record.args))


class Search:
    """The plugin; one in each process that runs tests, and one in the process that they report to."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._late: list[str] = []
        self._records = _Records(self.look)
        self._undo: Callable[[], None] = lambda: None

    def look(self, what: str, text: str) -> None:
        """Remember it when a secret shows in *text*; the test that runs will fail."""
        if (place := shown_in(text)) is not None:
            self._found.append(f"a secret shows in {what}: {place}")

    # ---- hooks ------------------------------------------------------------------------------------------------------

    def pytest_sessionstart(self) -> None:
        logging.getLogger().addHandler(self._records)
        self._undo = _errors_are_seen(self.look)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report: pytest.TestReport = yield  # type: ignore[assignment]  # what a hook's wrapper is sent
        self.look("the id of a test", item.nodeid if call.when == "setup" else "")
        for name, text in report.sections:
            if name.endswith(f" {call.when}"):
                self.look(name, text)
        if call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception):
            self.look("the exception that failed the test", _text_of(call.excinfo.value))
        _fail(report, self._taken())
        return report  # type: ignore[return-value]

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        # Called when its test has been reported, and with xdist in another process.
        if (place := shown_in(str(warning_message.message))) is not None:
            self._late.append(f"a secret shows in a warning, {nodeid}: {place}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        logging.getLogger().removeHandler(self._records)
        self._undo()
        output = getattr(session.config, "workeroutput", None)
        self._late += self._taken()
        if output is not None:
            output["secrets"] = self._late
        elif self._late:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._late += getattr(node, "workeroutput", {}).get("secrets", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._late:
            terminalreporter.write_line(line, red=True)

    def _taken(self) -> list[str]:
        taken, self._found = list(dict.fromkeys(self._found)), []
        return taken


def _fail(report: pytest.TestReport, found: Iterable[str]) -> None:
    """A test that passed, but for what showed, fails; one that failed says so, too."""
    text = "\n".join(found)
    if not text:
        return
    if report.outcome == "failed":
        report.sections.append(("Secrets", text))
    else:
        report.outcome, report.longrepr = "failed", text


def _text_of(error: BaseException) -> str:
    """What an exception says, and those it came from; not the lines of the test, in which secrets are written."""
    seen: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen[id(each)] = each
            waiting += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
    return "\n".join("".join(traceback.format_exception_only(each)) + repr(each) for each in seen.values())


def _errors_are_seen(look: Callable[[str, str], None]) -> Callable[[], None]:
    """From now on look at each of our errors when it is made; gives what ends that."""
    from pyclient.errors import KafkaError

    made = KafkaError.__init__

    @functools.wraps(made)
    def seen(self: KafkaError, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        look(f"a {type(self).__name__}", f"{self.args!r} {vars(self)!r}")

    KafkaError.__init__ = seen  # type: ignore[method-assign]

    def undo() -> None:
        KafkaError.__init__ = made  # type: ignore[method-assign]

    return undo
