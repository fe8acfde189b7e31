"""What Spark's garbage collection after each task need not look at.

Independent of clients. A Python worker of Spark collects all garbage after each task. That visits every object of every
module the process has loaded, which costs more CPU than many a task.
"""
from __future__ import annotations

import gc

from pyclient.integration.spark.context import in_task


def leave_out_what_stays() -> None:
    """In a task: what is alive now is not visited by later collections of this process; elsewhere nothing.

    Call it when modules are loaded and a client is made. Objects that were left out before and have become garbage
    since are collected first, so that none is kept forever.
    """
    if in_task():
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def leave_out_what_is_loaded() -> None:
    """As `leave_out_what_stays`, once in a process: for tasks that make no client."""
    if not gc.get_freeze_count():
        leave_out_what_stays()
