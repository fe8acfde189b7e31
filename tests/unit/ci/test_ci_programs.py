"""The programs behind the Makefile. They are scripts of no package: loaded here by their path."""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_net" name="test_M08_first[a]" />
<testcase classname="tests.unit.test_net" name="test_M08_first[b]">{inside}</testcase>
<testcase classname="tests.unit.test_net" name="test_other"><skipped message="why" /></testcase>
</testsuite></testsuites>"""
UNSTEADY = '[["test", "tests.unit.test_net", "test_M08_first[b]"]]'
TESTS = '''
def test_M08_first(x):
    pass

def test_other():
    """Also about M12, and M080 or XM13 are no IDs."""

class TestP07Buffers:
    def test_inside(self): ...
'''


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(ROOT / ".ci"))  # they import each other, as they do when run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The trace program, looking at a small project of its own."""
    module = load("trace")
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_net.py").write_text(TESTS)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RULES", tmp_path / "rules.md")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "junit")
    (tmp_path / "junit").mkdir()
    return module


def results(trace: ModuleType, inside: str = "") -> None:
    (trace.RESULTS / "test.xml").write_text(JUNIT.format(inside=inside))


def faults(trace: ModuleType, *items: str) -> list[str]:
    found: list[str] = trace.report(trace.rules("# Title\n\n## List\n\n" + "\n".join(items)))
    return found


def test_a_rule_is_proven_by_the_tests_that_quote_its_id(trace: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    results(trace)
    assert faults(trace, "- **M08** First on every\n  connection.") == []
    assert "M08  First on every connection." in capsys.readouterr().out


def test_a_rule_without_a_test_is_a_fault(trace: ModuleType) -> None:
    results(trace)
    assert "M09 has no test" in faults(trace, "- **M09** Throttled.")[0]


def test_a_rule_is_broken_when_one_of_its_tests_failed(trace: ModuleType) -> None:
    results(trace, "<failure>no</failure>")
    assert "M08 is broken" in faults(trace, "- **M08** First.")[0]


def test_an_unsteady_test_proves_its_rule(trace: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    results(trace, "<failure>no</failure>")
    (trace.RESULTS / "unsteady.json").write_text(UNSTEADY)
    assert faults(trace, "- **M08** First.") == []
    assert "unsteady tests.unit.test_net::test_M08_first" in capsys.readouterr().out


def test_a_skipped_test_proves_nothing(trace: ModuleType) -> None:
    results(trace)
    assert "M12 is not proven" in faults(trace, "- **M12** Lengths.")[0]


def test_an_id_is_quoted_by_the_whole_word_only(trace: ModuleType) -> None:
    results(trace)
    found = {each.name: each.ids for each in trace.tests(trace.ROOT / "tests")}
    assert found == {"test_M08_first": {"M08"}, "test_other": {"M12"}, "test_inside": set()}


def test_a_rule_may_name_its_tests(trace: ModuleType) -> None:
    results(trace)
    assert faults(trace, "- **B01** Fields. (tests: `test_M08_first`)") == []
    with pytest.raises(SystemExit, match="test_gone"):
        faults(trace, "- **B01** Fields. (tests: `test_gone`)")


def test_at_most_one_rule_in_ten_of_a_list_may_have_a_reason_instead(trace: ModuleType) -> None:
    results(trace)
    proven = [f"- **B{number:02}** Fields. (tests: `test_M08_first`)" for number in range(9)]
    excused = "- **B09** Old. (no test: Only a broker of 2010 does it.)"
    assert faults(trace, *proven, excused) == []
    assert "have no test" in faults(trace, *proven[1:], excused)[0]


def test_without_results_nothing_is_proven(trace: ModuleType) -> None:
    assert "run `make test-all` first" in faults(trace, "- **M08** First.")[-1]


def test_a_copy_of_the_checkout_touches_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("checkout")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    target = tmp_path / "target"
    for name in ("same", "changed", "gone"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("same")
    assert module.copy(target, ["same", "changed", "gone", "link"])
    unchanged = (target / "same").stat().st_mtime_ns
    (target / "built").write_text("of what was copied")
    (tmp_path / "changed").write_text("otherwise")
    (tmp_path / "same").touch()
    assert not module.copy(target, ["same", "changed", "gone", "link"])
    assert module.copy(target, ["same", "changed", "link"])
    assert {path.name: path.read_text() for path in target.iterdir() if path.name != module.NAMES} == {
        "same": "same", "changed": "otherwise", "link": "same", "built": "of what was copied"}
    assert (target / "link").is_symlink()
    assert (target / "same").stat().st_mtime_ns == unchanged


@pytest.fixture
def closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The closing program, looking at results of its own."""
    module = load("closing")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def close(closing: ModuleType, *sections: str) -> int:
    with pytest.raises(SystemExit) as ended:
        closing.main(sections)
    return int(ended.value.code or 0)


@pytest.mark.parametrize(("inside", "sections", "line", "code"), [
    ("", [], "2 passed, 0 failed", 0),
    ("<failure>no</failure>", [], "1 passed, 1 failed", 1),
    ("", ["check", "build"], "2 passed, 2 failed", 1),
])
def test_the_closing_line_counts_tests_and_failed_sections(
        closing: ModuleType, capsys: pytest.CaptureFixture[str], inside: str, sections: list[str], line: str, code: int) -> None:
    (closing.RESULTS / "a.xml").write_text(JUNIT.format(inside=inside))
    assert close(closing, *sections) == code
    assert capsys.readouterr().out.splitlines()[-1] == line


@pytest.mark.parametrize(("unsteady", "exit_code", "sections", "line", "code"), [
    (UNSTEADY, "1", ["test"], "2 passed, 0 failed", 0),
    (UNSTEADY, "1", ["test", "build"], "2 passed, 1 failed", 1),
    (UNSTEADY, "2", ["test"], "2 passed, 1 failed", 1),  # pytest was interrupted: tests may be missing
    (UNSTEADY, None, ["test"], "2 passed, 1 failed", 1),
    ("[]", "1", ["test"], "1 passed, 2 failed", 1),
])
def test_an_unsteady_test_is_named_with_its_error_and_excuses_its_section_if_all_tests_ran(
        closing: ModuleType, capsys: pytest.CaptureFixture[str], unsteady: str, exit_code: str | None, sections: list[str], line: str,
        code: int) -> None:
    (closing.RESULTS / "test.xml").write_text(JUNIT.format(inside="<failure>E   late</failure>"))
    (closing.RESULTS / "unsteady.json").write_text(unsteady)
    if exit_code:
        (closing.RESULTS / "test.exit").write_text(exit_code)
    assert close(closing, *sections) == code
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == line
    assert "test_M08_first[b]" in printed
    assert "E   late" in printed
    assert ("unsteady tests: 1" in printed) == (unsteady == UNSTEADY)


def test_when_cis_time_is_over_extended_tests_are_skipped_and_counted_and_the_exit_code_is_kept(
        closing: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    tests = ["tests/threads/test_signals.py", "tests/unit/ci/test_levels.py::test_no_entry_is_covered_by_another"]
    subprocess.run([Path(sys.executable).with_name("pytest"), "-q", f"--junitxml={closing.RESULTS / 'test.xml'}", *tests], cwd=ROOT,
                   env={**os.environ, "PYCLIENT_CI_ENDS": "0"}, timeout=120, check=True, capture_output=True)
    assert (closing.RESULTS / "test.exit").read_text() == "0"
    assert close(closing) == 0
    left, end = capsys.readouterr().out.splitlines()
    assert left.startswith("tests left to `make nightly`, as CI's time was over: ")
    assert int(left.rpartition(" ")[2]) > 0
    assert end == "1 passed, 0 failed"


BROKER = """<testsuites><testsuite>
<testcase classname="tests.broker.test_net" name="test_a[x::y]"><failure>no</failure></testcase>
<testcase classname="tests.broker.test_net.TestMore" name="test_b"><error>no</error></testcase>
<testcase classname="tests.unit.test_net" name="test_c"><failure>no</failure></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def second_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program of second tries, looking at results of its own."""
    module = load("second_try")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    (tmp_path / "test.xml").write_text(BROKER)
    (tmp_path / "fuzz.xml").write_text(BROKER)
    return module


def test_units_and_other_suites_get_no_second_try(second_try: ModuleType) -> None:
    assert [case.name for case in second_try.failed_cases(second_try.RESULTS)] == ["test_a[x::y]", "test_b"]


@pytest.mark.parametrize(("passes", "unsteady", "tries"), [
    ([True, True, True, True], ["test_a[x::y]", "test_b"], 4),
    ([True, False, True, True], ["test_b"], 4),
    ([False, False], [], 2),
])
def test_a_test_that_fails_again_is_broken(
        second_try: ModuleType, monkeypatch: pytest.MonkeyPatch, passes: list[bool], unsteady: list[str], tries: int) -> None:
    left = list(passes)
    monkeypatch.setattr(second_try, "passes", lambda case: left.pop(0))
    second_try.main()
    assert [name for _, _, name in json.loads((second_try.RESULTS / "unsteady.json").read_text())] == unsteady
    assert len(passes) - len(left) == tries


def test_many_failed_tests_get_no_second_try(second_try: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_try, "passes", lambda case: pytest.fail("it ran again"))
    failed = second_try.failed_cases(second_try.RESULTS)
    assert second_try.unsteady_of(failed * 3) == []


def test_a_failed_test_runs_again_by_its_file_classes_and_parameters(second_try: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "tests" / "broker").mkdir(parents=True)
    (tmp_path / "tests" / "broker" / "test_net.py").touch()
    assert [second_try.node_id(case, tmp_path) for case in second_try.failed_cases(second_try.RESULTS)] == [
        "tests/broker/test_net.py::test_a[x::y]", "tests/broker/test_net.py::TestMore::test_b"]


@pytest.mark.parametrize(("body", "passed"), [("assert True", True), ("assert False", False), ("pytest.skip('no')", False)])
def test_a_second_try_counts_only_if_the_test_ran_and_passed(
        second_try: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, passed: bool) -> None:
    place = tmp_path / "tests" / "broker"
    place.mkdir(parents=True)
    (place / "test_net.py").write_text(f"import pytest\n\ndef test_a():\n    {body}\n")
    (tmp_path / "build").mkdir()
    monkeypatch.setattr(second_try, "ROOT", tmp_path)
    case = second_try.failed_cases(second_try.RESULTS)[0]._replace(name="test_a")
    assert second_try.passes(case) is passed


def test_each_row_of_the_unsteady_tests_names_a_test_and_one_that_stands_twice_has_a_cure() -> None:
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in (ROOT / "tests" / "unsteady.md").read_text().splitlines()
            if line.startswith("| 20")]
    uncured = [test for _, test, _, cure in rows if cure == "open"]
    for _, test, _, _ in rows:
        file, _, function = test.strip("`").partition("::")
        assert f"def {function.partition('[')[0]}(" in (ROOT / file).read_text(), test
    assert sorted(uncured) == sorted(set(uncured))


@pytest.mark.parametrize(("inside", "shown"), [
    ("<failure>def test():\n&gt;   assert 1 == 2\nE   assert 1 == 2\n\ntests/a.py:2: AssertionError</failure>",
     "E   assert 1 == 2\ntests/a.py:2: AssertionError"),
    ("<error>first\nTimeout</error>", "first\nTimeout"),
    ("<error message='no setup'/>", "no setup"),
])
def test_the_end_of_a_run_says_why_tests_failed(
        closing: ModuleType, capsys: pytest.CaptureFixture[str], inside: str, shown: str) -> None:
    (closing.RESULTS / "a.xml").write_text(JUNIT.format(inside=inside))
    assert close(closing) == 1
    assert f"failed:\n{shown}\n" in capsys.readouterr().out


def test_the_set_up_recompiles_when_a_source_or_a_header_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = load("setup")
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    source = tmp_path / "pyclient" / "codec" / "fast.py"
    source.parent.mkdir(parents=True)
    header = source.with_suffix(".pxd")
    project = {"tool": {"setuptools": {"ext-modules": [{"name": "pyclient.codec.fast", "sources": ["pyclient/codec/fast.py"]}]}}}
    seen = set()
    for file, text in ((source, "a"), (source, "b"), (header, "a"), (header, "b")):
        file.write_text(text)
        seen.add(setup.compiled_inputs(project))
    assert len(seen) == 4
    assert not setup.compiled_everything(project)
    source.with_suffix(".cpython-311.so").touch()
    assert setup.compiled_everything(project)


def test_a_python_that_is_too_old_is_refused_with_what_would_do(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    refused = subprocess.run(
        [str(ROOT / ".ci" / "python")], env={**os.environ, "PYTHON": str(old)}, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert "3.11" in refused.stderr


def test_every_target_of_the_makefile_is_explained_by_make_help() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    for target in ("demo", "test", "test-all", "proof", "flaky", "test-containers", "check", "bench", "trace", "build", "setup", "docs", "clean", "help"):
        assert f"make {target} " in listed, target


def test_each_test_that_containers_run_exists() -> None:
    module = load("test_containers")
    for name in (*module.DIFFERENT, *module.LEFT_TO_NIGHTLY):
        file, _, function = name.partition("::")
        assert (ROOT / file).exists(), name
        assert f"def {function}(" in (ROOT / file).read_text() if function else True, name


@pytest.mark.parametrize(("printed", "message"), [("libasan.so", "apt-get install libgcc-N-dev"), (None, "apt-get install gcc libc6-dev")])
def test_fuzz_asan_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str | None, message: str) -> None:
    if printed is not None:
        (tmp_path / "gcc").write_text(f"#!/bin/sh\necho {printed}\n")
        (tmp_path / "gcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=message):
        load("fuzz_asan").library()


def test_fuzz_asan_runs_every_fuzzer_after_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("fuzz_asan")
    ran: list[str] = []

    def fuzz(name: str, *_: object) -> bool:
        ran.append(name)
        return name != "mutate"

    for name in ("library", "compile_modules"):
        monkeypatch.setattr(module, name, lambda: Path("libasan.so"))
    monkeypatch.setattr(module, "copy_sources", lambda: None)
    monkeypatch.setattr(module, "fuzz", fuzz)
    with pytest.raises(SystemExit, match=r"failed: mutate \(seed 7\)"):
        module.main("1", "7")
    assert set(ran) == {path.stem for path in (ROOT / "tests" / "fuzz").glob("*.py") if "def main(" in path.read_text()}


@pytest.fixture
def interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program that tries other interpreters, with an empty cache and on a machine that suits it."""
    module = load("interpreters")
    monkeypatch.setattr(module, "CACHE", tmp_path)
    monkeypatch.setattr(module, "check_machine", lambda: None)
    return module


def test_a_smoke_run_makes_one_root_at_most(interpreters: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert interpreters.smoked_versions() == ["3.14"]
    assert "Python 3.13: left to the next run" in capsys.readouterr().out
    (tmp_path / "forky").mkdir()
    assert interpreters.smoked_versions() == ["3.14", "3.13"]
    assert not capsys.readouterr().out


def test_a_machine_where_no_root_can_be_made_gets_one_line(
    interpreters: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check_machine() -> None:
        raise interpreters.NoRootError("this needs root on Debian")

    monkeypatch.setattr(interpreters, "check_machine", check_machine)
    interpreters.main(["--smoke"])
    assert capsys.readouterr().out == "interpreters: skipped: this needs root on Debian\n"


def test_a_smoke_run_without_packages_is_skipped_in_words_and_a_whole_run_fails(interpreters: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreters, "inside", lambda *_: 1)
    whole = interpreters.INTERPRETERS[0]
    with pytest.raises(interpreters.NoRootError, match="pip reaches no packages"):
        interpreters.install_tools(whole._replace(is_smoked=True))
    with pytest.raises(interpreters.StepError, match="installing the tools failed"):
        interpreters.install_tools(whole)


def test_what_is_not_optimized_is_kept_apart(interpreters: ModuleType) -> None:
    whole = interpreters.INTERPRETERS[0]
    assert whole.made != whole._replace(is_smoked=True).made


def test_c_is_taken_from_the_checkout_only_if_it_is_newer_than_its_sources(
    interpreters: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text('[[tool.setuptools.ext-modules]]\nname = "a"\nsources = ["a.py"]\n')
    for seconds, name in enumerate(["a.py", "other.pxd", "a.c"]):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (seconds, seconds))
    monkeypatch.setattr(interpreters, "ROOT", tmp_path)
    monkeypatch.setattr(interpreters, "tracked", lambda: ["a.py", "other.pxd"])
    assert interpreters.written_by_cython() == ["a.c"]
    for source in ("a.py", "other.pxd"):
        os.utime(tmp_path / source, (3, 3))
        assert interpreters.written_by_cython() == []
        os.utime(tmp_path / source, (0, 0))


def test_an_interpreter_that_fails_does_not_stop_the_others_and_one_that_is_not_to_be_had_fails_nothing(
    interpreters: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(interpreter: Any) -> str:
        if interpreter.version == "3.13":
            raise interpreters.StepError("a test failed")
        return "passed"

    def make_root(interpreter: Any) -> None:
        if interpreter.version == "3.11":
            raise interpreters.NoRootError("no archive answers")

    monkeypatch.setattr(interpreters, "make_root", make_root)
    monkeypatch.setattr(interpreters, "install_python", lambda interpreter: None)
    with pytest.raises(SystemExit) as ended:
        interpreters.each_in_turn(["3.11", "3.13", "3.14"], work)
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert "Python 3.11: skipped: no archive answers" in out
    assert "Python 3.13: FAILED: a test failed" in out
    assert "Python 3.14: passed" in out
    with pytest.raises(SystemExit) as ended:
        interpreters.each_in_turn(["3.11", "3.14"], work)
    assert ended.value.code == 0


def test_the_binary_of_a_module_that_is_compiled_no_longer_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = load("setup")
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    folder = tmp_path / "pyclient" / "net"
    folder.mkdir(parents=True)
    kept = {"kept.py", "kept.c", "kept.cpython-311-x.so", "kept.cpython-313-x.so", "plain.py"}
    for name in (*kept, "plain.cpython-311-x.so", "plain.c", "gone.cpython-311-x.so"):
        (folder / name).touch()
    setup.remove_stale_binaries({"tool": {"setuptools": {"ext-modules": [{"sources": ["pyclient/net/kept.py"]}]}}})
    assert {each.name for each in folder.iterdir()} == kept
