# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Callable

from pyclient.core.fetching.under_way import Fetch, FetchesUnderWay
from pyclient.metric_values import Total, Windows
from pyclient.net.connection import Connection
from pyclient.net.node_connections import NodeConnections

class FetchExchange:
    connection: Connection
    descriptor: int
    def __init__(self, connection: Connection, node: NodeConnections, clock: Callable[[], float],
                 figures: tuple[Total, Windows, Total, Windows]) -> None: ...
    def run(self, fetches: FetchesUnderWay, fetch: Fetch, size: int, frame: bytes) -> Fetch | None: ...
