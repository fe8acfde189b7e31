from __future__ import annotations

from pathlib import Path

import pytest

from pyclient.testing.archive import Archive
from pyclient.testing.jars import Jars
from pyclient.testing.java import Java


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PYCLIENT_CACHE", str(tmp_path))
    return tmp_path


def archive(folder: Path, feature: int = 25, digest: str = "d1") -> Archive:
    return Archive(Java(folder / "java", folder, feature, f"{feature}.0.1"), Jars("4.3.1", folder, ("a.jar",), digest))


def made(some: Archive, content: bytes = b"classes") -> None:
    """What a trained Java does: write the file its flag names."""
    training = some.training()
    assert training is not None
    [flag] = training.flags()
    Path(flag.partition("=")[2]).write_bytes(content)
    training.finish(orderly=True)


def test_an_archive_made_by_an_orderly_end_is_used_from_then_on(cached: Path) -> None:
    some = archive(cached)
    assert some.flags() == []
    made(some)
    assert some.flags() == [f"-XX:AOTCache={some.path}"]
    assert some.training() is None


@pytest.mark.parametrize(("feature", "option"), [(17, "-XX:ArchiveClassesAtExit"), (24, "-XX:ArchiveClassesAtExit"),
                                                 (25, "-XX:AOTCacheOutput"), (26, "-XX:AOTCacheOutput")])
def test_each_java_gets_the_option_it_knows(cached: Path, feature: int, option: str) -> None:
    (cached / "lib" / "server").mkdir(parents=True)
    (cached / "lib" / "server" / "classes.jsa").touch()
    training = archive(cached, feature).training()
    assert training is not None
    assert training.flags()[0].startswith(f"{option}={cached}")
    training.finish(orderly=False)


def test_a_java_without_base_archive_makes_none_before_25(cached: Path) -> None:
    assert archive(cached, 21).training() is None


def test_a_run_that_was_killed_leaves_no_archive_and_no_file(cached: Path) -> None:
    some = archive(cached)
    training = some.training()
    assert training is not None
    half_written = Path(training.flags()[0].partition("=")[2])
    half_written.write_bytes(b"half")
    training.finish(orderly=False)
    assert not some.usable
    assert not half_written.exists()


def test_only_one_at_a_time_makes_it_and_the_next_may_when_the_first_failed(cached: Path) -> None:
    first = archive(cached).training()
    assert first is not None
    assert archive(cached).training() is None
    first.finish(orderly=False)
    second = archive(cached).training()
    assert second is not None
    second.finish(orderly=False)


def test_a_truncated_or_replaced_file_is_not_used(cached: Path) -> None:
    some = archive(cached)
    made(some)
    some.path.write_bytes(b"class")
    assert some.flags() == []


def test_a_discarded_archive_is_made_again(cached: Path) -> None:
    some = archive(cached)
    made(some)
    some.discard()
    assert not some.usable
    made(some)
    assert some.usable


def test_other_jars_or_another_java_have_an_archive_of_their_own(cached: Path) -> None:
    paths = {archive(cached, feature, digest).path for feature in (25, 26) for digest in ("d1", "d2")}
    assert len(paths) == 4
