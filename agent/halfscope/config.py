"""What the agent was told to do: arguments of `watch`, environment variables and their defaults, checked once.

The one place of the agent that reads HALFSCOPE_* variables. Must not import torch or numpy.
Invariant: an `AgentConfig` that exists is valid; whoever gives a wrong value learns it at once, with the fix in the
message.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

Mode = Literal["online", "offline", "disabled"]

PRECISIONS = ("FP32", "TF32", "FP16-AMP", "FP16", "BF16-AMP", "BF16", "mixed")
"""Labels `watch(precision=)` takes."""

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_MAX_NAME_CHARS = 200
DEFAULT_BUDGET_SHARE = 0.005
MAX_START_STEP = 1 << 52
"""Servers take steps up to 2^53; what is left is for the steps that follow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentConfig:
    """Everything that is decided before the first hook is set."""

    mode: Mode
    project: str
    name: str
    run_id: str
    stream: str
    directory: Path
    """Where journals are written: `<directory>/<run_id>/<stream>/`."""
    server: str | None
    """As given; None: the sender finds the address by itself."""
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    place_source: str = ""
    """Who told rank and size: `process group`, `launcher`, `slurm`; empty in a process that trains alone."""
    attempt: int = 0
    is_resumed: bool = False
    """`resume` was given: an earlier attempt of the run did steps before."""
    start_step: int = 0
    every: int | None = None
    """Gradients are sketched at every N-th step and at every skipped one; None: every 10th on a CPU, every 50th on a
    device, and more rarely where that costs more than the budget. Everything else is measured at every step."""
    budget_share: float = DEFAULT_BUDGET_SHARE
    """What sketches may cost, as a share of step time."""
    precision: str | None = None
    baseline: str | None = None
    """Id or name of the run that this one is to be compared with; the server finds it."""
    config: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()


def halfscope_home() -> Path:
    """HALFSCOPE_HOME, by default `~/.halfscope`."""
    return Path(os.environ.get("HALFSCOPE_HOME") or Path.home() / ".halfscope")


def journal_directory() -> Path:
    """HALFSCOPE_DIR, by default `journals` in the home."""
    return Path(os.environ.get("HALFSCOPE_DIR") or halfscope_home() / "journals")


def new_run_id(time_ms: int | None = None) -> str:
    """16 characters of lowercase base32 (Crockford): 48 bits of milliseconds, 32 random ones; later ids sort later."""
    return run_id_of(time.time_ns() // 1_000_000 if time_ms is None else time_ms, secrets.randbits(32))


def run_id_of(time_ms: int, rest: int) -> str:
    """The id of 48 bits of milliseconds and 32 others."""
    number = (time_ms & ((1 << 48) - 1)) << 32 | rest
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(75, -5, -5))


def time_us_of(run_id: str) -> int:
    """When an id of `run_id_of` was made, in microseconds: those within its millisecond come from its other bits, so
    that two of one millisecond are told apart."""
    number = 0
    for char in run_id:
        number = number << 5 | _CROCKFORD.index(char)
    return (number >> 32) * 1000 + (number & 0xFFFF_FFFF) % 1000


def is_run_id(text: str) -> bool:
    return len(text) == 16 and all(char in _CROCKFORD for char in text)


def resolve(
    *,
    project: str | None = None,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    tags: Sequence[str] | None = None,
    precision: str | None = None,
    baseline: Any = None,
    start_step: int = 0,
    resume: Any = None,
    every: int | None = None,
    budget_share: float | None = None,
    mode: str | None = None,
    server: str | None = None,
    run_id: str | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> AgentConfig:
    """Arguments of `watch` over environment variables over defaults. Which rank this is, and of which attempt, is found
    elsewhere (instrument/ranks.py).

    Args:
        project: HALFSCOPE_PROJECT, else `default`.
        name: HALFSCOPE_NAME, else the run id.
        run_id: HALFSCOPE_RUN_ID, else a new one; ranks of one job find theirs by themselves (instrument/ranks.py).
        resume: the run to continue, by id or as `watch` returned it; then `run_id` is that run's.
        baseline: HALFSCOPE_BASELINE, else none.
        budget_share: HALFSCOPE_BUDGET_SHARE, else 0.005; without effect where `every` is given.
        directory: HALFSCOPE_DIR, else `journals` in HALFSCOPE_HOME.

    Raises:
        ValueError, TypeError: a value that cannot be taken, with what would be.
    """
    env = os.environ
    chosen_mode = mode if mode is not None else env.get("HALFSCOPE_MODE") or "online"
    if chosen_mode not in get_args(Mode):
        raise ValueError(
            f"mode is {chosen_mode!r}; expected one of {', '.join(get_args(Mode))} (argument mode= or HALFSCOPE_MODE)"
        )
    run = _resumed(resume, run_id) or run_id or env.get("HALFSCOPE_RUN_ID") or new_run_id()
    if not is_run_id(run):
        raise ValueError(
            f"run_id is {run!r}; expected 16 characters of {_CROCKFORD}. "
            "Take Run.id of the run to continue, or leave it out"
        )
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}; expected one of {', '.join(PRECISIONS)}, or None to find out")
    base = Path(directory) if directory is not None else journal_directory()
    return AgentConfig(
        mode=cast(Mode, chosen_mode),
        project=_text("project", project or env.get("HALFSCOPE_PROJECT") or "default"),
        name=_text("name", name or env.get("HALFSCOPE_NAME") or run),
        run_id=run,
        stream=secrets.token_hex(8),
        directory=base,
        server=server or env.get("HALFSCOPE_SERVER") or None,
        is_resumed=resume is not None,
        start_step=_count("start_step", start_step, least=0, most=MAX_START_STEP),
        every=None if every is None else _count("every", every, least=1),
        budget_share=_budget_share(budget_share),
        precision=precision,
        baseline=_baseline(env.get("HALFSCOPE_BASELINE") if baseline is None else baseline),
        config=_config(config),
        tags=_tags(tags),
    )


def _config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise TypeError(f"config is {type(config).__name__}; expected a dict (for argparse: config=vars(args))")
    return {str(key): value for key, value in config.items()}


def _baseline(given: Any) -> str | None:
    named = getattr(given, "id", given)  # a run that `watch` returned, in a program that trains both
    if named is not None and not isinstance(named, str):
        raise TypeError(f"baseline is {given!r}; expected the id or the name of a run (argument baseline=)")
    return _text("baseline", named) if named else None


def _resumed(given: Any, run_id: str | None) -> str | None:
    if given is None:
        return None
    named = getattr(given, "id", given)  # a run that `watch` returned, in a program that goes on with it
    if not isinstance(named, str) or not is_run_id(named):
        raise ValueError(
            f"resume is {given!r}; expected a run as watch returned it, or its id: 16 characters of {_CROCKFORD} "
            "(Run.id, or the end of its page's address)"
        )
    if run_id is not None and run_id != named:
        raise ValueError(f"resume is {named} and run_id is {run_id}; give one of them, or the same")
    return named


def whole(variable: str, default: int) -> int:
    """A whole number from the environment; the default where it is none."""
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else default


def _count(name: str, value: int, *, least: int, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}; expected a whole number of at least {least}")
    if value < least:
        raise ValueError(f"{name} is {value}; expected at least {least}")
    if most is not None and value > most:
        raise ValueError(f"{name} is {value}; expected at most {most}")
    return value


def _budget_share(given: float | None) -> float:
    value: object = (os.environ.get("HALFSCOPE_BUDGET_SHARE") or None) if given is None else given
    if value is None:
        return DEFAULT_BUDGET_SHARE
    expected = "expected a share of step time above 0 and up to 1, as 0.005 for half a percent"
    where = "(argument budget_share= or HALFSCOPE_BUDGET_SHARE)"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f"budget_share is {value!r}; {expected} {where}")
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise ValueError(f"budget_share is {value!r}; {expected} {where}")
    return share


def _text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; expected a string")
    if len(value) > _MAX_NAME_CHARS:
        raise ValueError(f"{name} has {len(value)} characters; at most {_MAX_NAME_CHARS} are taken")
    return value


def _tags(tags: Sequence[str] | None) -> tuple[str, ...]:
    if tags is None:
        return ()
    if isinstance(tags, str):
        raise TypeError(f"tags is the string {tags!r}; expected a list of strings, as in tags=[{tags!r}]")
    if any(not isinstance(tag, str) for tag in tags):
        raise TypeError(f"tags is {tags!r}; expected a list of strings")
    return tuple(tags)
