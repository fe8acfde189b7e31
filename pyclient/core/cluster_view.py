# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Where the newest view of the cluster is found."""
from __future__ import annotations

from pyclient.core.cluster import Cluster


class ClusterView:
    """Holds the newest `Cluster`: one reference store publishes it to every thread."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
