"""Runs case programs, each alone and under `halfscope run`, in a fork of a process that has imported torch once.

    python driver.py FOLDER CASE...

writes per case and way (`alone`, `watched`) FOLDER/<way>/<case>.out, .err and .json (exit code, what was left behind),
and the journals of the watched ones below FOLDER/journals/<case>. Programs named `<case>_ranks` run on two ranks.
Started as a process of its own: it forks.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import halfscope.launch.auto  # noqa: F401 - loaded once, not in every child
import torch
import torch._dynamo.repro.after_dynamo
import torch._functorch.aot_autograd
import torch._inductor.compile_fx
import torch.distributed.fsdp
import torch.jit._recursive as recursive
import torch.nn.utils.clip_grad as clip_module
from halfscope.instrument import scaler as scaler_hooks
from halfscope.instrument.forward import ForwardHook
from halfscope.launch import program as programs
from halfscope.launch.births import classes
from halfscope.launch.start import AutoWatch

optimizers = sys.modules["torch.optim.optimizer"]  # as an attribute it is not there

PROGRAMS = Path(__file__).parent / "programs"
NUM_RANKS = 2
"""Of programs whose names end with `_ranks`."""
PATIENCE_S = 120.0
MODES = {"alone": "disabled", "watched": "offline"}
"""Of programs that call `halfscope.watch` themselves."""


def main(folder: Path, cases: list[str]) -> int:
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # what lies before the fork is not looked through in every child again
    for case in cases:
        for way in ("alone", "watched"):
            (folder / way).mkdir(parents=True, exist_ok=True)
            if case.endswith("_ranks"):
                _on_ranks(folder, case, way)
            else:
                _wait([_fork(folder, case, way, case)])
    return 0


def _on_ranks(folder: Path, case: str, way: str) -> None:
    """As a launcher starts them; what they wrote is put together, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(NUM_RANKS)}
    os.environ.update(job)
    names = [f"{case}-{rank}" for rank in range(NUM_RANKS)]
    try:
        _wait([_fork(folder, case, way, name, RANK=str(rank)) for rank, name in enumerate(names)])
    finally:
        for key in job:
            del os.environ[key]
    for suffix in (".out", ".err"):
        texts = [(folder / way / f"{name}{suffix}").read_text(encoding="utf-8") for name in names]
        (folder / way / f"{case}{suffix}").write_text("".join(texts), encoding="utf-8")
    results = [json.loads((folder / way / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    joined = {
        "exit_code": max(result["exit_code"] for result in results),
        "left": [one for result in results for one in result["left"]],
    }
    (folder / way / f"{case}.json").write_text(json.dumps(joined), encoding="utf-8")


def _wait(children: list[int]) -> None:
    """To the end of all; those that hang are killed, and are told by the result that they have not left."""
    deadline_s = time.monotonic() + PATIENCE_S
    while children:
        children = [child for child in children if os.waitpid(child, os.WNOHANG)[0] == 0]
        if children and time.monotonic() > deadline_s:
            for child in children:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def _fork(folder: Path, case: str, way: str, name: str, **environment: str) -> int:
    child = os.fork()
    if child == 0:
        os.environ.update(environment)
        _in_child(folder, case, way, name)
    return child


def _in_child(folder: Path, case: str, way: str, name: str) -> None:
    base = folder / way / name
    for number, suffix in ((1, ".out"), (2, ".err")):
        target = os.open(f"{base}{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, number)
    os.environ.update(HALFSCOPE_DIR=str(folder / "journals" / case), HALFSCOPE_MODE=MODES[way], OMP_NUM_THREADS="1")
    code, left = 0, []
    try:
        left = _alone(case) if way == "alone" else _watched(case)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    Path(f"{base}.json").write_text(json.dumps({"exit_code": code, "left": left}), encoding="utf-8")
    os._exit(0)


def _alone(case: str) -> list[str]:
    sys.path.insert(0, str(PROGRAMS))
    runpy.run_path(str(PROGRAMS / f"{case}.py"), run_name="__main__")
    return []


def _watched(case: str) -> list[str]:
    found = programs.from_file(str(PROGRAMS / f"{case}.py"))
    watch = AutoWatch({"every": 1}, found.default_name)
    watch.start()
    try:
        programs.run(found, [])
    finally:
        watch.stop()
    return list(_left_behind())


def _left_behind() -> Iterator[str]:
    """What of halfscope is still on torch, on the process or on any object."""
    for owner in classes():
        if hasattr(owner.__init__, "__wrapped__"):
            yield f"{owner.__name__}.__init__ is wrapped"
    if torch.nn.modules.module._has_any_global_hook():
        yield "a hook for all modules"
    if optimizers._global_optimizer_pre_hooks or optimizers._global_optimizer_post_hooks:
        yield "a hook for all optimizers"
    for name in ("_get_total_norm", "_group_tensors_by_device_and_dtype"):
        if getattr(clip_module, name).__module__.startswith("halfscope"):
            yield f"torch.nn.utils.clip_grad.{name}"
    if recursive.create_script_module.__module__.startswith("halfscope") or hasattr(
        recursive.create_script_module, "__wrapped__"
    ):
        yield "torch.jit._recursive.create_script_module"
    if any(_is_ours(finder) for finder in sys.meta_path):
        yield "an import hook"
    if any(_is_ours(getattr(callback, "__self__", callback)) for callback in gc.callbacks):
        yield "a callback of the garbage collector"
    yield from (f"thread {thread.name}" for thread in threading.enumerate() if thread.name.startswith("halfscope"))
    for item in gc.get_objects():
        yield from _left_on(item)


def _left_on(item: Any) -> Iterator[str]:
    kind = type(item)
    if issubclass(kind, torch.amp.GradScaler) and scaler_hooks.is_attached(item):
        yield "a scaler's class"
    elif issubclass(kind, torch.nn.Module) and "_forward_pre_hooks" in vars(item):
        if any(isinstance(hook, ForwardHook) for hook in item._forward_pre_hooks.values()):
            yield f"a forward hook on {kind.__name__}"
        for name, parameter in item.named_parameters(recurse=False):
            hooks = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
            if any(_is_ours(getattr(hook, "__self__", hook)) for hook in hooks.values()):
                yield f"a gradient hook on {kind.__name__}.{name}"
    elif issubclass(kind, torch.optim.Optimizer):
        hooks = [*item._optimizer_step_pre_hooks.values(), *item._optimizer_step_post_hooks.values()]
        yield from (f"a step hook on {kind.__name__}" for hook in hooks if _is_ours(hook))


def _is_ours(item: Any) -> bool:
    module = getattr(item, "__module__", None) or type(item).__module__
    return str(module).startswith("halfscope")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
