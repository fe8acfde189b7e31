"""A client's import leaves hypothesis alone, in both directions."""
from __future__ import annotations

import subprocess
import sys

import pytest

PHANTOM = "import kio.static._phantom as base"


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True).stdout.strip()


@pytest.mark.parametrize("module", ["pyclient.codec.messages", "pyclient.codec.consumer_protocol"])
def test_a_client_loads_no_hypothesis_and_programs_can_import_it_later(module: str) -> None:
    assert run(f"import sys, {module}; print('hypothesis' in sys.modules, len(sys.meta_path)); import hypothesis.strategies").split()[0] == "False"


def test_programs_that_import_hypothesis_first_keep_kios_strategies() -> None:
    assert run(f"import hypothesis, pyclient.codec.messages; {PHANTOM}; print(base.hypothesis is hypothesis)") == "True"
