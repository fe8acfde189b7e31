# cython: language_level=3, freethreading_compatible=True
"""The time of a client's clock, which is the system's unless a simulation runs."""
import cython
from cython.cimports.pyclient.clocks import system_seconds

import time

SYSTEM = time.monotonic


@cython.ccall
def seconds_of(clock: object) -> cython.double:
    """What *clock* says, in seconds: without a Python call if it is `time.monotonic`."""
    return system_seconds() if clock is SYSTEM else clock()
