"""What a run's state is called.

Owns the words for live, finished, failed and the rest, and for precision labels. Must not import the store's tables.
Invariant: the same state reads the same on every page.
"""

from __future__ import annotations

from collections.abc import Mapping

from halfscope_server.query.format import ago
from halfscope_server.store.types import RunRow

_PRECISION_ROLES = {
    "FP32": "fp32",
    "TF32": "tf32",
    "FP16-AMP": "fp16",
    "FP16": "fp16",
    "BF16-AMP": "bf16",
    "BF16": "bf16",
    "FP8": "fp8",
}


def state_text(row: RunRow, now_us: int) -> str:
    """`Live`, `Finished`, `Failed: RuntimeError`, `Lost contact 2 min ago`."""
    match row.state:
        case "waiting":
            return "Waiting for the first step"
        case "live":
            return "Live"
        case "failed":
            return f"Failed: {_exit_code(row.error_type, row.error_message) or row.error_type}".removesuffix(": ")
        case "lost":
            return f"Lost contact {ago((now_us - (row.ended_us or row.updated_us)) / 1e6)}"
        case other:
            return other.capitalize()


def error_text(error_type: str, message: str) -> str:
    """`RuntimeError: out of luck`, `exit code 3`; empty where nothing was told."""
    return _exit_code(error_type, message) or ": ".join(part for part in (error_type, message) if part)


def _exit_code(error_type: str, message: str) -> str:
    """Of a program that ended itself. What is no number was printed, and the code is 1."""
    if error_type != "SystemExit" or not message:
        return ""
    return f"exit code {message}" if message.lstrip("-").isdecimal() else f"exit code 1: {message}"


def precision_of(row: RunRow) -> str:
    """The label the agent gave, or empty while it is not known."""
    return str(row.facts.get("precision") or "")


def precision_role(row: RunRow) -> str:
    """Colour role of the run's number format, or empty."""
    return _PRECISION_ROLES.get(precision_of(row), "")


def device_name(row: RunRow) -> str:
    """What the run computes on: the name of its accelerator, `CPU`, or empty while it is not known."""
    device = row.facts.get("device")
    if not isinstance(device, Mapping):
        return str(device or "")
    kind = str(device.get("type") or "")
    # A processor's name tells its instruction set, which nobody looks for in a table of runs.
    return kind.upper() if kind == "cpu" else str(device.get("name") or kind)
