"""What users install: complete, alone under its names, compiled, typed, and able to talk to a broker."""
from __future__ import annotations

import re
import tarfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.distribution import Distribution, empty_environment, run

if TYPE_CHECKING:
    from pyclient.testing import LocalCluster

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = [module["name"] for module in PROJECT["tool"]["setuptools"].get("ext-modules", [])]
TYPING_CASES = ROOT / "tests" / "typing" / "user_file.py"

ROUND_TRIP = """
import sys
from pyclient import Consumer, Producer, TopicPartition

address, topic = sys.argv[1:]
with Producer(bootstrap_servers=address) as producer:
    sent = producer.send(topic, b"from the wheel", key=b"k", headers=[("h", None)]).result(timeout=30)
with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
    consumer.assign([TopicPartition(topic, sent.partition)])
    record = next(iter(consumer))
print(sent.offset, record.offset, record.key, record.value, record.headers)
"""


@pytest.fixture(scope="module")
def python(distribution: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment outside the checkout that holds the wheel and what it depends on."""
    return empty_environment(tmp_path_factory.mktemp("user") / "venv", str(distribution.wheel))


def test_the_wheel_claims_no_name_but_its_own(distribution: Distribution) -> None:
    tops = {name.partition("/")[0] for name in distribution.names()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pyclient", "pyspark_pyclient"}


def test_the_wheel_holds_every_package_and_every_compiled_module(distribution: Distribution) -> None:
    names = distribution.names()
    folders = {name.rpartition("/")[0].replace("/", ".") for name in names if name.endswith("/__init__.py")}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == folders
    for module in MODULES:
        path = module.replace(".", "/")
        assert any(re.fullmatch(rf"{re.escape(path)}\..*\.(so|pyd)", name) for name in names), module


def test_the_wheel_is_typed_and_holds_no_build_leftovers(distribution: Distribution) -> None:
    names = distribution.names()
    assert "pyclient/py.typed" in names
    assert not [name for name in names if name.endswith((".c", ".pyc", ".html")) or name.startswith(("tests", "typings"))]


def test_the_sdist_holds_each_source_once_and_no_links(distribution: Distribution) -> None:
    with tarfile.open(distribution.sdist) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    names = [member.name.partition("/")[2] for member in members]
    assert "partitioners/__init__.py" in names
    assert "pyclient/partitioners/__init__.py" not in names


def test_the_wheel_imports_where_nothing_else_is_installed(python: Path, tmp_path: Path) -> None:
    modules = ", ".join(["pyclient", *MODULES])
    where = run(str(python), "-c", f"import {modules}; print(pyclient.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(python.parent.parent)


def test_the_wheel_passes_what_every_platforms_wheel_must_pass(python: Path, tmp_path: Path) -> None:
    run(str(python), str(ROOT / ".ci" / "wheel_smoke.py"), cwd=tmp_path)


def test_spark_finds_the_registration_module_of_the_wheel(python: Path, tmp_path: Path) -> None:
    """Spark lists top-level modules named pyspark_*; an import hook, as of an editable install, is not listed."""
    find = "import pkgutil; print([m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')])"
    assert run(str(python), "-c", find, cwd=tmp_path).strip() == "['pyspark_pyclient']"


def test_an_extra_that_is_missing_is_named_by_the_error(python: Path, tmp_path: Path) -> None:
    ask = "from pyclient.codec.columns import to_arrow; to_arrow([])"
    program = f"try:\n    {ask}\nexcept ImportError as error:\n    print(error)"
    assert "pyclient-kafka[arrow]" in run(str(python), "-c", program, cwd=tmp_path)


def check_types(python: Path, file: Path, cache: Path) -> str:
    """Run strict mypy on a user's *file* against what *python* has installed; returns what it says."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--cache-dir", str(cache), file.name]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def test_a_users_file_passes_strict_mypy_and_its_mistakes_do_not(python: Path, tmp_path: Path) -> None:
    """Each mistake in the file is marked ``type: ignore[code]``, and strict mypy refuses a mark that nothing needs."""
    file = tmp_path / "user_file.py"
    file.write_text(TYPING_CASES.read_text())
    assert "Success" in check_types(python, file, tmp_path / "cache")


def test_an_option_of_the_wrong_type_is_a_type_error_that_names_it(python: Path, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text('from pyclient import Producer\nProducer(bootstrap_servers="a:1", linger_ms=[20])\n')
    said = check_types(python, file, tmp_path / "cache")
    assert "wrong.py:2" in said
    assert "linger_ms" in said


def test_the_wheel_produces_and_consumes(python: Path, kafka_cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    program = tmp_path / "round_trip.py"
    program.write_text(ROUND_TRIP)
    said = run(str(python), str(program), kafka_cluster.bootstrap_servers, topic, cwd=tmp_path)
    assert said.strip() == "0 0 b'k' b'from the wheel' [('h', None)]"
