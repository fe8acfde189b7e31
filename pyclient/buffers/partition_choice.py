# cython: language_level=3, freethreading_compatible=True, embedsignature=True
"""Which partition a record goes to: the one its sender names, or what the partitioner says, if that can be.

Knows nothing of hashes or queues. Once per record, in the sender's thread: compiled, since calling a Python function would cost
more than hashing the key. Holds no lock: partitioners are the user's code.
"""
import cython

from pyclient.plugins import STICKY as _STICKY


@cython.final
@cython.cclass
class Choice:
    """A producer's way to choose. ``keyed_only``: the partitioner is not asked for records without a key; ``ignore_keys``: never."""

    _ask: object
    _who: str
    _sticky: object
    _keyed_only: cython.bint
    _ignore_keys: cython.bint

    def __init__(self, partitioner, *, keyed_only: cython.bint, ignore_keys: cython.bint):
        self._ask = partitioner.partition
        self._who = type(partitioner).__name__
        self._sticky = _STICKY
        self._keyed_only = keyed_only
        self._ignore_keys = ignore_keys

    def partition(self, queues, key, value, wanted):
        """The partition asked for, the partitioner's, or `STICKY`. What the partitioner raises passes through.

        Raises:
            ValueError: the partitioner said what is no partition.
        """
        if wanted is not None:
            return wanted
        if self._ignore_keys or (self._keyed_only and key is None):
            return self._sticky
        chosen = self._ask(queues.topic, key, value, queues)
        if chosen is self._sticky:
            return chosen  # a hash has nothing to say without a key
        count: cython.Py_ssize_t = len(queues)
        if not isinstance(chosen, int) or not 0 <= chosen < count:
            raise ValueError(f"{self._who} chose partition {chosen!r} of topic {queues.topic!r}, "
                             f"which has {count}: it must return a number in range(len(partitions))")
        return chosen
