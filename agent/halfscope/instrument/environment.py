"""Facts about where a training runs: versions, device, variables, command line, commit.

Invariant: no secret leaves the machine: values behind names like `token` and things that look like keys are masked, and
only variables of torch, CUDA and NCCL are read.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from halfscope import native

GIT_TIMEOUT_S = 1.0
MASK = "***"

_VARIABLES = ("NCCL_", "TORCH_", "CUDA_", "PYTORCH_", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_SECRET_WORDS = frozenset(
    [
        "token",
        "secret",
        "secrets",
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "apikey",
        "credential",
        "credentials",
        "auth",
        "authorization",
        "bearer",
        "cookie",
        "dsn",
    ]
)
_KEY_WORDS = frozenset(["api", "access", "private", "secret", "ssh", "encryption", "signing", "account", "wandb", "hf"])
_SECRET_VALUE = re.compile(
    r"(?:hf_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|sk-|AKIA|ASIA|AIza|eyJ)[A-Za-z0-9_\-./+=]{12,}|\b[0-9a-fA-F]{40,}\b"
)
_URL_PASSWORD = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")
_OPTION = re.compile(r"^(-{1,2}[^=\s]+|[A-Za-z_][\w.\-]*)=(.*)$", re.DOTALL)


def describe() -> dict[str, Any]:
    """Everything that is known at the start; keys without a value are left out."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "directory": os.getcwd(),
        "command": mask_command(_command()),
        "variables": variables(os.environ),
        "torch": torch.__version__,
        "num_cpus": os.cpu_count(),
        "num_torch_threads": torch.get_num_threads(),
        "compiled_helper": "in use" if native.helper is not None else native.absent_because,
        "git": git(Path.cwd()),
        **_cuda(),
    }
    return {key: value for key, value in found.items() if value not in (None, "", {}, [])}


def mask_command(arguments: Iterable[str]) -> list[str]:
    """A command line without its secrets."""
    masked: list[str] = []
    hide_next = False
    for argument in arguments:
        option = _OPTION.match(argument)
        if hide_next and not argument.startswith("-"):
            masked.append(MASK)
            hide_next = False
            continue
        hide_next = False
        if option and _names_secret(option[1]):
            masked.append(f"{option[1]}={MASK}")
            continue
        hide_next = argument.startswith("-") and "=" not in argument and _names_secret(argument)
        masked.append(mask(argument))
    return masked


def mask(text: str) -> str:
    """`text` with what looks like a key, or the password of an address, masked."""
    return _SECRET_VALUE.sub(MASK, _URL_PASSWORD.sub(MASK, text))


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that steer torch, CUDA and NCCL."""
    return {
        name: MASK if _names_secret(name) else mask(value)
        for name, value in sorted(environ.items())
        if name.startswith(_VARIABLES)
    }


def device(found: torch.device) -> dict[str, Any]:
    """One device: its name and what it can do."""
    if found.type != "cuda":
        capability = torch.backends.cpu.get_cpu_capability() if found.type == "cpu" else ""
        name = (platform.processor() or platform.machine()) if found.type == "cpu" else found.type
        return {"type": found.type, "name": name, "capability": capability}
    properties = torch.cuda.get_device_properties(found)
    major, minor = torch.cuda.get_device_capability(found)
    return {
        "type": "cuda",
        "index": found.index or 0,
        "name": properties.name,
        "capability": f"{major}.{minor}",
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "bf16": torch.cuda.is_bf16_supported(),
    }


def git(start: Path) -> dict[str, Any]:
    """{commit, dirty} of the checkout that holds `start`; empty without one. Asks git for at most `GIT_TIMEOUT_S`."""
    if not any((path / ".git").exists() for path in (start, *start.parents)):
        return {}
    head = _git(start, "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
    if head is None:
        return {}
    commit, _, branch = head.partition("\n")
    found: dict[str, Any] = {"commit": commit}
    if branch != "HEAD":
        found["branch"] = branch
    status = _git(start, "status", "--porcelain", "--untracked-files=no")
    return found if status is None else {**found, "dirty": bool(status)}


def _git(where: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(where), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None


def _names_secret(name: str) -> bool:
    """Whether what stands behind this name is secret: `--hf_token`, `apiKey`; not `--tokenizer`, `--max-tokens`."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not _SECRET_WORDS.isdisjoint(words):
        return True
    return any(word == "key" and before in _KEY_WORDS for before, word in pairwise(words))


def _command() -> list[str]:
    return list(getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv])


def _cuda() -> dict[str, Any]:
    if not torch.cuda.is_available():
        return {}
    nccl = None
    if hasattr(torch.cuda, "nccl") and torch.distributed.is_available() and torch.distributed.is_nccl_available():
        nccl = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    return {
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "nccl": nccl,
        "num_devices": torch.cuda.device_count(),
    }
