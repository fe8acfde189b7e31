"""The checkout's files, as programs here copy them elsewhere to build and test them there."""
from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
NAMES: Final = ".copied"
"""What the copy before brought: a file of the copy."""


def tracked() -> list[str]:
    """The project's files; some may be deleted in the checkout."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and os.path.lexists(ROOT / name)]


def copy(target: Path, names: Iterable[str]) -> bool:
    """Bring a copy up to date; returns whether it holds other names than before.

    A file whose content is the same is not touched, so what was compiled from it in the copy stays good.
    """
    wanted = sorted(names)
    target.mkdir(parents=True, exist_ok=True)
    before = (target / NAMES).read_text().splitlines() if (target / NAMES).exists() else []
    for name in set(before) - set(wanted):
        (target / name).unlink(missing_ok=True)
    for name in wanted:
        copy_file(ROOT / name, target / name)
    (target / NAMES).write_text("\n".join(wanted))
    return before != wanted


def copy_file(source: Path, target: Path) -> None:
    """Bring one file of a copy up to date."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.unlink(missing_ok=True)
        target.symlink_to(source.readlink())
    elif target.is_symlink() or not target.exists() or target.read_bytes() != source.read_bytes():
        target.unlink(missing_ok=True)
        target.write_bytes(source.read_bytes())
        target.chmod(source.stat().st_mode)
