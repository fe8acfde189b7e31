"""Detection of a Docker engine. Imports nothing when its socket does not exist."""
from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Final

ANSWER_TIMEOUT_S: Final = 5
DEFAULT_SOCKET: Final = Path("/var/run/docker.sock")
UNIX: Final = "unix://"


def engine_answers() -> bool:
    """Whether the engine of ``DOCKER_HOST`` (or the default socket) answers, and the package to speak to it is here."""
    if not _has_listener():
        return False
    try:
        import docker
        import docker.errors
        import testcontainers.core  # noqa: F401  # what runs the containers
    except ImportError:
        return False
    # With a version given, the client asks nothing while it is made, where a failure would leave its connection open.
    client = docker.from_env(timeout=ANSWER_TIMEOUT_S, version=docker.constants.DEFAULT_DOCKER_API_VERSION)
    try:
        return bool(client.ping())
    except docker.errors.APIError:
        return True  # an engine that refuses this version
    except (docker.errors.DockerException, OSError):
        return False
    finally:
        client.close()


def _has_listener() -> bool:
    """Whether the engine's socket accepts connections; checked here, as the Docker client leaks a refused socket."""
    host = os.environ.get("DOCKER_HOST") or f"{UNIX}{DEFAULT_SOCKET}"
    if sys.platform == "win32" or not host.startswith(UNIX):
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ANSWER_TIMEOUT_S)
        try:
            probe.connect(host.removeprefix(UNIX))
        except OSError:
            return False
    return True
