"""The folder of owners is in the temporary directory, where anyone can create its name first."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyclient.testing import LocalClusterError
from pyclient.testing.owners import Owner, is_dead

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="there are no user ids")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"pyclient-owners-{os.getuid()}"


def test_the_folder_is_for_this_user_only(folder: Path) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    owner = Owner()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not is_dead("of another machine")
    owner.end()


def test_a_folder_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    user = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: user + 1)
    folder.rename(folder.with_name(f"pyclient-owners-{user + 1}"))
    for use in (Owner, lambda: is_dead("any")):
        with pytest.raises(LocalClusterError, match="another one created it"):
            use()


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LocalClusterError, match="not a folder of this user"):
        Owner()
    assert not list((tmp_path / "elsewhere").iterdir())
