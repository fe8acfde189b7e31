# Nothing here is visible from Python: see sealing.pxd. The functions are replaced by tests of threads.
from collections.abc import Callable

from typing_extensions import Buffer

crc32c: Callable[[Buffer], int]
