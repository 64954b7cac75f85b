"""The signals that end a command in an orderly way."""

from __future__ import annotations

import signal
import threading


def stop_signals() -> list[signal.Signals]:
    """Return the signals that end a command in an orderly way, except those that are ignored, as under nohup."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def interrupt_on_signals() -> None:
    """Handle SIGTERM and SIGHUP like Ctrl-C. In other threads than the main one, do nothing."""
    if threading.current_thread() is threading.main_thread():
        for number in stop_signals():
            signal.signal(number, signal.default_int_handler)
