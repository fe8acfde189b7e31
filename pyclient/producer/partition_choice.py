# cython: language_level=3, freethreading_compatible=True, embedsignature=True
"""The partition of a record: the one that the caller passes, or the partitioner's, which is checked.

Independent of hashes and queues. It runs once per record, in the sender's thread, and is compiled because calling a
Python function would cost more than hashing the key. It holds no lock: partitioners are user code.
"""
import cython

from pyclient.plugins import STICKY as _STICKY


@cython.final
@cython.cclass
class PartitionChoice:
    """``keyed_only``: the partitioner is called only for records with a key; ``ignore_keys``: never."""

    _partition: object
    _name: str
    _sticky: object
    _keyed_only: cython.bint
    _ignore_keys: cython.bint

    def __init__(self, partitioner, *, keyed_only: cython.bint, ignore_keys: cython.bint):
        self._partition = partitioner.partition
        self._name = type(partitioner).__name__
        self._sticky = _STICKY
        self._keyed_only = keyed_only
        self._ignore_keys = ignore_keys

    def partition(self, queues, key, value, wanted):
        """*wanted*, or the partitioner's choice, or `STICKY`. Exceptions of the partitioner propagate.

        Raises:
            ValueError: the partitioner returned something else than a partition of the topic.
        """
        if wanted is not None:
            return wanted
        if self._ignore_keys or (self._keyed_only and key is None):
            return self._sticky
        chosen = self._partition(queues.topic, key, value, queues)
        if chosen is self._sticky:
            return chosen  # a hash partitioner's choice for a record without a key
        count: cython.Py_ssize_t = len(queues)
        if not isinstance(chosen, int) or not 0 <= chosen < count:
            raise ValueError(f"{self._name} chose partition {chosen!r} of topic {queues.topic!r}, "
                             f"which has {count}: it must return a number in range(len(partitions))")
        return chosen
