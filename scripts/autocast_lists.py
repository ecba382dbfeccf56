"""Asks the installed torch which operations autocast casts, on a CPU and under CUDA, and writes docs/autocast.md.

    python scripts/autocast_lists.py            write docs/autocast.md
    python scripts/autocast_lists.py --json     print what was found

Nothing is looked up in a list. Every operator with a rule for autocast is called with tensors of each kind, with a
kernel of our own put where autocast hands over, and the dtypes that arrive there tell the rule. CUDA needs no GPU for
this: fake CUDA tensors take the same way through the dispatcher. Overriding kernels changes the whole process, so this
runs in one of its own.
Invariant: the page holds only what was observed, with the version of torch that it was observed on.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import textwrap
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

PAGE = Path(__file__).resolve().parent.parent / "docs" / "autocast.md"
DEVICES = ("cpu", "cuda")
DTYPES = (torch.float16, torch.bfloat16)

Rule = Literal["lower", "fp32", "widest", "refused", "inputs"]
"""What is done with floating-point inputs: cast to autocast's dtype; computed in FP32; cast to the widest of them;
raises; left as they are (an operator without a rule, known by its output)."""


class _Arrived(Exception):
    """An operator got past autocast; carries what it was given."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        super().__init__()
        self.arguments = arguments


@contextlib.contextmanager
def autocasting(device: str, dtype: torch.dtype) -> Iterator[None]:
    """Autocast for a device that need not be there, where `torch.autocast` would switch itself off."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])


def tensors_of(device: str) -> contextlib.AbstractContextManager[Any]:
    """Within it, tensors of a device can be made whether the device is there or not."""
    return contextlib.nullcontext() if device == "cpu" else FakeTensorMode()


# ---- rules: what arrives behind autocast ----------------------------------------------------------


def ruled(device: str) -> list[str]:
    """Operators (`aten::name.overload`) for which autocast has a kernel of its own on a device."""
    key = f"Autocast{device.upper()}"
    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return [name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)]


def rules(device: str, dtype: torch.dtype) -> dict[str, Rule]:
    """Operator to rule, by calling each behind which our kernel waits."""
    names = ruled(device)
    bases = {name.split(".")[0] for name in names}
    # All overloads: autocast hands `norm(x)` over to the overload that takes a dtype.
    targets = [name for name in torch._C._dispatch_get_all_op_names() if name.split(".")[0] in bases]
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    try:
        for name in targets:
            library.impl(name.removeprefix("aten::"), _arrive, f"Autograd{device.upper()}")
        with tensors_of(device), autocasting(device, dtype):
            return {name: _rule(name, device, dtype) for name in names}
    finally:
        library._destroy()


def _arrive(*arguments: Any, **keywords: Any) -> None:
    raise _Arrived([*arguments, *keywords.values()])


def _rule(name: str, device: str, dtype: torch.dtype) -> Rule:
    full, low = _arriving(name, device, [torch.float32]), _arriving(name, device, [dtype])
    mixed = _arriving(name, device, [dtype, torch.float32])
    if None in (full, low, mixed):
        return "refused"
    seen = (full, low, mixed)
    if seen == ({dtype}, {dtype}, {dtype}):
        return "lower"
    if seen == ({torch.float32}, {torch.float32}, {torch.float32}):
        return "fp32"
    if seen == ({torch.float32}, {dtype}, {torch.float32}):
        return "widest"
    raise AssertionError(f"{name} on {device}: {seen} is none of the known rules; look at it and describe it here")


def _arriving(name: str, device: str, dtypes: Sequence[torch.dtype]) -> set[torch.dtype] | None:
    """Dtypes in which an operator computes when its tensor arguments have these by turns; None: autocast refuses."""
    base, _, overload = name.removeprefix("aten::").partition(".")
    schema = torch._C._get_schema(f"aten::{base}", overload)
    turn = iter(dtypes[k % len(dtypes)] for k in range(1000))

    def tensor() -> torch.Tensor:
        return torch.ones(2, 2, device=device, dtype=next(turn))

    required = [argument for argument in schema.arguments if not argument.has_default_value()]
    given = {argument.name: _value(str(argument.type), tensor) for argument in required}
    names = [argument.name for argument in required if not argument.kwarg_only]
    keywords = {key: value for key, value in given.items() if key not in names}
    operator = getattr(getattr(torch.ops.aten, base), overload or "default")
    try:
        operator(*(given[key] for key in names), **keywords)
    except _Arrived as arrived:
        return _computed_in(arrived.arguments)
    except RuntimeError as error:
        if "unsafe to autocast" in str(error):
            return None
        raise
    raise AssertionError(f"{name} on {device} returned: our kernel was not reached")


def _value(kind: str, tensor: Callable[[], torch.Tensor]) -> Any:
    """Something of a schema's type; nothing is computed with it."""
    if kind in ("Tensor", "Optional[Tensor]"):
        return tensor()
    if kind == "List[Tensor]":
        return [tensor(), tensor()]
    if kind == "List[Optional[Tensor]]":
        # Indices, which autocast leaves alone.
        return [torch.ones(2, dtype=torch.int64)]
    plain: dict[str, Any] = {"int": 1, "number": 1, "Optional[number]": 1, "float": 1.0, "bool": True, "str": "none"}
    plain |= {"List[int]": [1], "Optional[List[int]]": [1]}
    return plain[kind]


def _computed_in(arguments: Sequence[Any]) -> set[torch.dtype]:
    # An operator that was given a dtype computes and answers in that, whatever its input is.
    asked = {argument for argument in arguments if isinstance(argument, torch.dtype)}
    flat = [each for argument in arguments for each in (argument if isinstance(argument, list) else [argument])]
    return asked or {each.dtype for each in flat if isinstance(each, torch.Tensor) and each.is_floating_point()}


def by_name(found: Mapping[str, Rule]) -> dict[str, Rule]:
    """Operators without their overloads.

    Raises:
        AssertionError: overloads of one name follow different rules.
    """
    merged: dict[str, Rule] = {}
    for name, rule in found.items():
        base = name.removeprefix("aten::").split(".")[0]
        assert merged.setdefault(base, rule) == rule, f"overloads of {base} differ"
    return merged


# ---- outputs: what a caller sees ------------------------------------------------------------------


def _parts(device: str, dtype: torch.dtype) -> Any:
    """Makes arguments: `x` a matrix, `image` a batch of one, `classes` labels of x's rows."""

    class Parts:
        x = torch.full((4, 4), 0.5, device=device, dtype=dtype)
        y = torch.full((4, 4), 0.5, device=device, dtype=dtype)
        vector = torch.full((4,), 0.5, device=device, dtype=dtype)
        image = torch.full((1, 4, 4, 4), 0.5, device=device, dtype=dtype)
        kernel = torch.full((4, 4, 3, 3), 0.5, device=device, dtype=dtype)
        classes = torch.zeros(4, device=device, dtype=torch.int64)

    return Parts()


ASKED_FOR: dict[str, Callable[[Any], torch.Tensor]] = {
    "linear": lambda p: functional.linear(p.x, p.y, p.vector),
    "matmul": lambda p: p.x @ p.y,
    "einsum": lambda p: torch.einsum("ij,jk->ik", p.x, p.y),
    "conv2d": lambda p: functional.conv2d(p.image, p.kernel),
    "scaled_dot_product_attention": lambda p: functional.scaled_dot_product_attention(p.image, p.image, p.image),
    "softmax": lambda p: p.x.softmax(-1),
    "log_softmax": lambda p: p.x.log_softmax(-1),
    "logsumexp": lambda p: p.x.logsumexp(-1),
    "layer_norm": lambda p: functional.layer_norm(p.x, (4,), p.vector, p.vector),
    "rms_norm": lambda p: functional.rms_norm(p.x, (4,), p.vector),
    "group_norm": lambda p: functional.group_norm(p.image, 2),
    "cross_entropy": lambda p: functional.cross_entropy(p.x, p.classes),
    "nll_loss": lambda p: functional.nll_loss(p.x, p.classes),
    "mse_loss": lambda p: functional.mse_loss(p.x, p.y),
    "binary_cross_entropy_with_logits": lambda p: functional.binary_cross_entropy_with_logits(p.x, p.y),
    "exp": lambda p: p.x.exp(),
    "log": lambda p: p.x.log(),
    "pow": lambda p: p.x**2,
    "rsqrt": lambda p: p.x.rsqrt(),
    "sum": lambda p: p.x.sum(),
    "mean": lambda p: p.x.mean(),
    "cumsum": lambda p: p.x.cumsum(0),
    "linalg.vector_norm": lambda p: torch.linalg.vector_norm(p.x),
    "softplus": lambda p: functional.softplus(p.x),
    "gelu": lambda p: functional.gelu(p.x),
    "relu": lambda p: p.x.relu(),
    "tanh": lambda p: p.x.tanh(),
    "sigmoid": lambda p: p.x.sigmoid(),
    "embedding": lambda p: functional.embedding(p.classes, p.x),
    "add": lambda p: p.x + p.y,
    "mul": lambda p: p.x * p.y,
    "cat": lambda p: torch.cat([p.x, p.y]),
}
"""Operations that people ask about, as they are written in a model."""


def outputs(device: str, dtype: torch.dtype) -> dict[str, Rule]:
    """Operation to what its output's dtype says, for FP32 and for lower inputs: really run on a CPU, with fake tensors
    under CUDA."""
    found: dict[str, Rule] = {}
    with tensors_of(device), autocasting(device, dtype):
        for name, operation in ASKED_FOR.items():
            full, low = (operation(_parts(device, given)).dtype for given in (torch.float32, dtype))
            answers: dict[tuple[torch.dtype, torch.dtype], Rule] = {
                (dtype, dtype): "lower",
                (torch.float32, torch.float32): "fp32",
                (torch.float32, dtype): "inputs",
            }
            found[name] = answers[full, low]
    return found


# ---- the page -------------------------------------------------------------------------------------


def observe() -> dict[str, Any]:
    """Everything that the page says.

    Raises:
        AssertionError: FP16 and BF16 autocast follow different rules on a device, which the page has no words for.
    """
    with warnings.catch_warnings():
        # Overriding a kernel is what this is about; each of them warns.
        warnings.simplefilter("ignore")
        seen = {(d, t): (outputs(d, t), by_name(rules(d, t))) for d in DEVICES for t in DTYPES}
    for device in DEVICES:
        assert seen[device, DTYPES[0]] == seen[device, DTYPES[1]], f"FP16 and BF16 differ on {device}"
    return {
        "torch": torch_version(),
        "outputs": {device: seen[device, DTYPES[0]][0] for device in DEVICES},
        "rules": {device: seen[device, DTYPES[0]][1] for device in DEVICES},
    }


def torch_version() -> str:
    """Major and minor: what may change the lists."""
    return ".".join(torch.__version__.split(".")[:2])


HEAD = """\
# Which operations autocast casts

Autocast does not run a model in FP16 or BF16. It has a rule for some operators, other rules on other devices, and
leaves everything else alone: an operator without a rule computes in whatever dtype its inputs happen to have. So
"softmax runs in FP32 under autocast" is true on CUDA and not on a CPU.

This page is generated by `python scripts/autocast_lists.py`, which asks the installed torch; a test compares it with
the torch it runs on. Observed on torch {torch}, alike for FP16 and BF16. The CUDA lists were observed without a GPU:
fake CUDA tensors take the same way through torch's dispatcher.

- **lower**: floating-point inputs are cast to autocast's dtype.
- **FP32**: inputs are cast to FP32, or the result is asked for in FP32.
- **widest**: inputs are cast to the widest dtype among them.
- **as its inputs**: no rule; FP32 in, FP32 out; FP16 in, FP16 out, with FP16's limits.

## Often asked for

Told from the dtype of the output, for FP32 and for lower inputs. A function without a rule of its own is made of others
that may have one: `cross_entropy` on CUDA is `log_softmax` and `nll_loss`.

| operation | CPU | CUDA |
|---|---|---|
{asked}

To run a part in FP32 whatever the lists say, switch autocast off around it **and** cast its inputs:

```python
with torch.autocast("cuda", enabled=False):
    y = delicate(x.float())
```

There is no argument of `torch.autocast` that takes names of operators.
"""

SECTIONS: tuple[tuple[Rule, str, str], ...] = (
    ("lower", "Lower precision", ""),
    ("fp32", "FP32", ""),
    ("widest", "Widest of the inputs", ""),
    ("refused", "Refused", "Raises under autocast; the variant that takes logits does not."),
)
WORDS: Mapping[Rule, str] = {"lower": "lower", "fp32": "FP32", "widest": "widest", "inputs": "as its inputs"}


def render(found: Mapping[str, Any]) -> str:
    """The page."""
    cpu, cuda = found["outputs"]["cpu"], found["outputs"]["cuda"]
    asked = "\n".join(f"| `{name}` | {WORDS[cpu[name]]} | {WORDS[cuda[name]]} |" for name in cpu)
    parts = [HEAD.format(torch=found["torch"], asked=asked)]
    for device, title in (("cpu", "CPU"), ("cuda", "CUDA")):
        groups: dict[str, list[str]] = defaultdict(list)
        for name, rule in found["rules"][device].items():
            groups[rule].append(name)
        parts.append(
            f"## All rules: {title}\n\nNames are ATen's; those with an underscore in front are called by others.\n"
        )
        for rule, heading, text in SECTIONS:
            if groups[rule]:
                listed = textwrap.fill(", ".join(f"`{name}`" for name in sorted(groups[rule])), 120)
                said = f"{text}\n\n" if text else ""
                parts.append(f"### {heading} on {title}\n\n{said}{listed}\n")
    return "\n".join(parts)


def generated_for(page: str) -> str:
    """The version of torch that a page was observed on."""
    (version,) = re.findall(r"Observed on torch (\d+\.\d+)", page)
    return str(version)


def main(arguments: Sequence[str]) -> int:
    found = observe()
    if "--json" in arguments:
        print(json.dumps(found))
        return 0
    PAGE.write_text(render(found), encoding="utf-8")
    print(f"{PAGE}: torch {found['torch']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
