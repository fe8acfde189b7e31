# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The compiled path of ``send_arrow``: a few rows of a schema that is known go into their batches in one step.

To look at the names and types of columns costs more than to send a hundred rows. What the interpreted way found is kept
for data of an equal schema; what a schema does not say is looked at each time.
Nothing here waits. Rule: data that the fast path does not accept has changed no state.
"""
import cython
from cython.cimports.pyclient.buffers.accumulator import Accumulator
from cython.cimports.pyclient.buffers.clock import now_ms
from cython.cimports.pyclient.buffers.deliveries import Deliveries
from cython.cimports.pyclient.buffers.queues import TopicQueues
from cython.cimports.pyclient.buffers.rows import Rows
from cython.cimports.pyclient.codec.arrow_columns import Column, PlainColumns

from pyclient.buffers.rows import CHUNK, note_interruption
from pyclient.errors import KafkaError

MOST_ROWS = cython.declare(cython.Py_ssize_t, CHUNK)
MOST_SCHEMAS = cython.declare(cython.Py_ssize_t, 64)


@cython.final
@cython.cclass
class ArrowPath:
    """Appends few rows with plain values and keys.

    *key_hash* is a partitioner's capsule, which chooses for keys; None: all records go to the sticky partition.
    The fields are declared in fast_arrow.pxd.
    """

    def __init__(self, accumulator: Accumulator, observer: object, key_hash: object):
        self._accumulator = accumulator
        self._observer = observer
        self._key_hash = key_hash
        self._known = {}

    def learn(self, names: tuple, plain: PlainColumns | None):
        """Data whose value, key, headers and timestamp have these *names* is *plain*, if it has the same schema."""
        if plain is not None:
            if len(self._known) >= MOST_SCHEMAS:
                self._known.clear()
            self._known[names] = plain

    def send(self, topic: object, data: object, value: object, key: object, headers: object, timestamp: object,
             topic_column: object, partition_column: object) -> object:
        """Queue the rows of *data*, and return their `Deliveries`. Without memory for all return the `Rows`, with those
        that are left; None for data that is not simple.
        """
        rows: Rows = None
        if topic_column is None and partition_column is None and _are_names(value, key, headers, timestamp):
            rows = self._loaded(topic, data, self._known.get((value, key, headers, timestamp)))
        return None if rows is None else self._append(rows)

    @cython.cfunc
    def _loaded(self, topic: object, data: object, plain: PlainColumns | None) -> Rows:
        if plain is None or type(topic) is not str or self._accumulator._closed is not None:
            return None
        queues: TopicQueues = self._accumulator._topics.by_name.get(topic)
        value: Column
        key: Column
        try:
            count: cython.Py_ssize_t = 0 if queues is None else plain.rows_of(data)
            if not 0 < count <= MOST_ROWS:
                return None
            value, key = plain.value_of(data, count), plain.key_of(data, count)
        except Exception:  # noqa: BLE001 it is damaged, as the interpreted way will find
            return None
        rows: Rows = Rows(Deliveries(self._observer), [queues], [topic], None, self._key_hash)
        now: cython.longlong = now_ms() if self._accumulator._wall is None else self._accumulator._wall()
        rows.load_columns(0, 0, count, value, key, None, None, None, None, now)
        return rows

    @cython.cfunc
    def _append(self, rows: Rows) -> object:
        try:
            if not self._accumulator.append_rows(rows):
                return rows
        except KafkaError as error:  # no record is accepted any more
            while rows.at < rows.end:
                rows.reject(error)
        except BaseException as stopped:
            note_interruption(stopped, rows.position)
            raise
        rows.deliveries.finish(rows.loaded)
        return rows.deliveries


@cython.cfunc
@cython.exceptval(-1, check=False)
def _are_names(value: object, key: object, headers: object, timestamp: object) -> cython.bint:
    """Whether these are columns' names, or None."""
    return _is_name(value) and _is_name(key) and _is_name(headers) and _is_name(timestamp)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _is_name(given: object) -> cython.bint:
    return given is None or type(given) is str
