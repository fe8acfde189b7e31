"""Ctrl-C, or another signal, at a chosen byte code: more moments than those of Python, and each of them for certain."""
from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def press() -> None:
    """A real signal, which the client may defer. Its handler runs here and now otherwise."""
    signal.raise_signal(signal.SIGINT)


def interrupted_at(number: int, call: Callable[[], object], handler: Callable[[], object] = press, where: str = "opcode") -> bool:
    """Make *call*, and call *handler* at its byte code of this *number*; whether it has so many.

    *where* "call": at the beginning of the interpreted function of this number. Python looks for signals there.
    Garbage is not collected meanwhile: a finalizer of an earlier test would be a call too, and swallow what is raised.
    """
    left = number

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == where:
            left -= 1
            if left == 0:
                sys.settrace(None)
                handler()
        return trace

    collects = gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
        if collects:
            gc.enable()
    return left <= 0
