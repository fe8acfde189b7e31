"""Whether a Docker engine answers. Light: asks without importing anything where there is plainly none."""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

ANSWER_TIMEOUT_S: Final = 5
DEFAULT_SOCKET: Final = Path("/var/run/docker.sock")


def engine_answers() -> bool:
    """Whether the engine of ``DOCKER_HOST`` (or the default socket) answers, and the package to speak to it is here."""
    if not os.environ.get("DOCKER_HOST") and sys.platform != "win32" and not DEFAULT_SOCKET.exists():
        return False
    try:
        import docker
        import docker.errors
        import testcontainers.core  # noqa: F401  # what runs the containers
    except ImportError:
        return False
    try:
        client = docker.from_env(timeout=ANSWER_TIMEOUT_S)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except (docker.errors.DockerException, OSError):
        return False
