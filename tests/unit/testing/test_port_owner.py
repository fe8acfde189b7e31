"""The process that has a port is named, with what to type."""
from __future__ import annotations

import os
import re
import socket
import sys

import pytest

from pyclient.testing.port_owner import listener_on, port_taken
from tests.addresses import unused_address

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_process_that_listens_is_named_with_how_to_end_it(family: socket.AddressFamily, host: str) -> None:
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        found = listener_on(port)
        assert found is not None
        assert found.pid == os.getpid()
        assert re.search(rf"--port {port} cannot be used: process {os.getpid()} \(.+\) listens there\. Type `kill {os.getpid()}`", port_taken(port))


def test_a_port_that_only_a_connection_uses_has_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        assert listener_on(connection.getsockname()[1]) is None


def test_without_a_listener_to_name_it_still_says_what_to_type() -> None:
    assert "another process or cluster has it" in port_taken(unused_address().port)
