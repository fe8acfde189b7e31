"""Whether a CancelledError cancels the running task, or comes from what the task awaits, such as a user's function."""
from __future__ import annotations

import asyncio


def being_cancelled() -> bool:
    """Whether some caller cancels the running task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
