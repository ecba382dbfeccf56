"""Cases without a training of their own: the public functions, on the same data and on more of its kind."""

from __future__ import annotations

import copy
import io
import json
import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import halfscope
import numpy as np
import pytest
import torch
from halfscope.instrument.names import parameter_names
from halfscope.record.layout import find_streams
from halfscope_server.compare.comparison import Comparison, Comparisons
from halfscope_server.compare.cost import measure
from halfscope_server.query import Views
from halfscope_server.query.events import plain
from halfscope_server.query.format import json_number

from tests.cases.recordings import Recording, read
from tests.helpers.comparing import Recordings, ship

ORACLE: dict[str, Any] = json.loads((Path(__file__).parent / "oracle.json").read_text(encoding="utf-8"))


def metrics(case: str) -> dict[str, Any]:
    found: dict[str, Any] = ORACLE[case]["expect"]["metrics"]
    return found


Watch = Callable[..., halfscope.Run]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    runs: list[halfscope.Run] = []

    def start(*given: Any) -> halfscope.Run:
        runs.append(halfscope.watch(*given, mode="offline", directory=tmp_path / "journals", every=1))
        return runs[-1]

    yield start
    for run in runs:
        run.finish()


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[], list[Recording]]:
    return lambda: read(tmp_path / "journals")


# ---- C10, C32: norms ----------------------------------------------------------------------------


def test_c10_the_norm_of_an_unscaled_gradient_is_the_models() -> None:
    """After `unscale_`, as FP32 has it within FP16's rounding."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    batch = torch.randn(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(batch)
    scaler.scale(output.float().pow(2).mean()).backward()
    scaler.unscale_(optimizer)
    low, high = metrics("c10")["grad.norm[weight]"]
    assert model.weight.grad is not None
    assert low <= halfscope.sketch_of(model.weight.grad).norm <= high


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("grad.norm(a)", torch.full((1000,), 300.0, dtype=torch.float16)),
        ("grad.norm(b)", torch.full((10**4,), 3e19)),
    ],
)
def test_c32_norms_do_not_overflow(name: str, tensor: torch.Tensor) -> None:
    """Squares are summed in float64: of FP16 values, and of FP32 ones whose squares FP32 cannot hold."""
    low, high = metrics("c32")[name]
    assert low <= halfscope.sketch_of(tensor).norm <= high


def test_c32_mean_squares_do_not_vanish() -> None:
    """FP16 squares of 1e-4 are 0; ours are 1e-8."""
    sketch = halfscope.sketch_of(torch.full((4096,), 1e-4, dtype=torch.float16))
    low, high = metrics("c32")["mean_sq(c)"]
    assert low <= sketch.sumsq / sketch.n <= high


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_c32_moments_equal_float64(dtype: torch.dtype) -> None:
    """For every type, over its whole range, against NumPy in float64."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.rand(4096, generator=generator) * 25 - 12
    tensor = (torch.randn(4096, generator=generator) * torch.exp2(exponents)).to(dtype)
    exact = tensor.double().numpy()
    sketch = halfscope.sketch_of(tensor)
    assert float(sketch.sumsq) == pytest.approx((exact**2).sum(), rel=1e-12)
    assert float(sketch.sum) == pytest.approx(exact.sum(), rel=1e-9)
    assert float(sketch.absmax) == np.abs(exact).max()


# ---- C33, C45: where non-finite gradients are ------------------------------------------------------


@pytest.mark.parametrize("layer", ["0.weight", "0.bias", "1.weight", "1.bias"])
def test_c33_one_infinite_gradient_names_its_layer_alone(
    watch: Watch, recorded: Callable[[], list[Recording]], layer: str
) -> None:
    """Read before clipping spreads it: in the events and in the sketches the other layers are finite."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = watch(model, optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    dict(model.named_parameters())[layer].grad.view(-1)[2] = float("inf")
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    run.finish()
    (found,) = recorded()
    (event,) = found.events("nonfinite_applied")
    assert event.where == [layer]
    sketches = found.frames[0].layers
    assert {name: int(sketch.pos_inf) for name, sketch in sketches.items()} == {
        name: int(name == layer) for name, _ in model.named_parameters()
    }
    assert not any(int(sketch.nan) or int(sketch.zeros) for sketch in sketches.values())


@pytest.mark.parametrize("name", ["sqrt_sumsq", "std", "norm", "pow_half"])
def test_c45_gradients_at_zero_are_counted_as_they_are(name: str) -> None:
    """NaN where the derivative has none, zeros where torch gives zeros."""
    functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "sqrt_sumsq": lambda values: values.pow(2).sum().sqrt(),
        "std": lambda values: values.std(),
        "norm": lambda values: values.norm(),
        "pow_half": lambda values: values.pow(2).sum() ** 0.5,
    }
    values = torch.zeros(4, requires_grad=True)
    functions[name](values).backward()
    assert values.grad is not None
    sketch = halfscope.sketch_of(values.grad)
    num_nan = sum(each == "nan" for each in ORACLE["c45"]["observed"][name]["grad"])
    assert (int(sketch.nan), int(sketch.zeros)) == (num_nan, 4 - num_nan)


# ---- C47, C49, C50, C51: what comparisons tell ---------------------------------------------------------


@pytest.mark.parametrize("setting", ["highest", "high", "medium"])
def test_c47_a_baseline_that_may_not_be_fp32_is_told(
    watch: Watch, tmp_path: Path, recordings: Recordings, setting: str
) -> None:
    """By the switch, whatever type its tensors say; and not where both runs are what they are called."""
    before = torch.get_float32_matmul_precision()
    try:
        for precision in (setting, "highest"):
            torch.set_float32_matmul_precision(precision)
            model = torch.nn.Linear(4, 2)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            run = watch(model, optimizer)
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            run.finish()
    finally:
        torch.set_float32_matmul_precision(before)
    places = sorted(find_streams(tmp_path / "journals"), key=lambda place: place.run_id)
    for place in places:
        ship(recordings.store, place)
    fairness = Comparisons(Views(recordings.store)).get([place.run_id for place in places]).fairness
    (item,) = [item for item in fairness.items if item.id == "baseline_not_fp32"]
    if setting == "highest":
        assert item.state == "same"
    else:
        assert item.state == "different"
        assert {"quality", "speed"} <= set(item.confounds)
        assert setting in item.values[0]


def _decomposed(kind: str, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """The stages of what exporters take apart."""
    if kind == "softmax":
        found = {"exp": inputs.exp()}
        return found | {
            "sum": found["exp"].sum(-1, keepdim=True),
            "out": found["exp"] / found["exp"].sum(-1, keepdim=True),
        }
    found = {"mean": inputs.mean(-1, keepdim=True)} if kind == "layer_norm" else {}
    found["sub"] = inputs - found["mean"] if kind == "layer_norm" else inputs
    found["pow"] = found["sub"].pow(2)
    found["var"] = found["pow"].mean(-1, keepdim=True)
    found["rsqrt"] = torch.rsqrt(found["var"] + 1e-5)
    return found | {"out": found["sub"] * found["rsqrt"]}


def test_c49_the_stage_that_overflows_is_found_behind_a_finite_result() -> None:
    """The square, though what comes out is finite: zero in every element."""
    torch.manual_seed(0)
    inputs = torch.randn(4, 64) * 400
    stages = halfscope.compare_tensors(_decomposed("layer_norm", inputs), _decomposed("layer_norm", inputs.half()))
    (event,) = ORACLE["c49"]["expect"]["events"]
    assert next(stage.name for stage in stages if stage.diverges) == event["where"]
    for stage in stages:
        assert stage.relative_error == pytest.approx(float(ORACLE["c49"]["observed"]["rel_err"][stage.name]), rel=1e-3)
    assert stages[-1].relative_error == pytest.approx(metrics("c49")["rel_err[out]"])
    assert (stages[-1].zero_share, stages[-1].nonfinite) == (metrics("c49")["out.zero_frac"], 0)


@pytest.mark.parametrize(
    ("kind", "gain", "first"),
    [
        ("layer_norm", 1.0, None),
        ("rms_norm", 400.0, "pow"),
        ("rms_norm", 1e-3, "pow"),  # squares near FP16's floor
        ("softmax", 1.0, None),
        ("softmax", 8.0, "exp"),
    ],
)
def test_c49_healthy_stages_do_not_diverge_and_others_do_where_it_begins(
    kind: str, gain: float, first: str | None
) -> None:
    """More of what is taken apart, with and without trouble."""
    torch.manual_seed(0)
    inputs = torch.randn(4, 64) * gain
    stages = halfscope.compare_tensors(_decomposed(kind, inputs), _decomposed(kind, inputs.half()))
    assert next((stage.name for stage in stages if stage.diverges), None) == first


def test_c50_amp_that_is_not_faster_says_why(recordings: Recordings) -> None:
    """Layers too small, and no FP16 arithmetic. The oracle's ratio is tried by `make calibrate`, on an idle machine."""
    _, cost = measure(Comparison(recordings.views("tiny_fp32", "tiny_fp16")))
    assert cost.speedup is not None
    assert cost.speedup.low is not None
    assert cost.speedup.low < 1.1
    assert any("layers are small" in because for because in cost.because)
    assert any("FP16 arithmetic" in because for because in cost.because)


def test_c51_what_overflows_in_eager_mode_alone_is_found() -> None:
    """Infinite in one, finite in the other, by the values that the program printed."""
    eager, compiled = (float(metrics("c51")[name]) for name in ("eager", "compiled"))
    for given, reference in [((eager, compiled), compiled), ((compiled, eager), eager)]:
        (found,) = halfscope.compare_tensors({"y": torch.tensor([given[1]])}, {"y": torch.tensor([given[0]])})
        assert found.diverges
        assert (found.nonfinite, found.reference_nonfinite) == (int(given[0] == eager), int(reference == eager))


# ---- C56, C58: what holds NaN ------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["nan", "inf", "all_nan", "empty"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_c56_a_histogram_counts_what_is_not_finite(case: str, dtype: torch.dtype) -> None:
    """Nothing raises, and every element has its place: a bin, zero, NaN or an infinity."""
    values = {"nan": [1.0, math.nan], "inf": [1.0, math.inf], "all_nan": [math.nan] * 3, "empty": []}[case]
    sketch = halfscope.sketch_of(torch.tensor(values, dtype=dtype))
    right = ORACLE["c56"]["observed"][case]["right"]
    assert int(sketch.n) == right["total"]
    assert (int(sketch.nan), int(sketch.pos_inf), int(sketch.neg_inf)) == (right["nan"], right["pinf"], right["ninf"])
    assert int(sketch.nonzero + sketch.zeros) == right["binned"]


def test_c56_signed_zeros_and_infinities_have_their_own_counts() -> None:
    """-0 is a zero, and the infinities are two kinds."""
    sketch = halfscope.sketch_of(torch.tensor([0.0, -0.0, math.inf, -math.inf, -math.inf, 1e-45, -2.0]))
    assert (int(sketch.zeros), int(sketch.pos_inf), int(sketch.neg_inf), int(sketch.nonzero)) == (2, 1, 2, 2)


@pytest.mark.parametrize(("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_c58_numbers_that_json_has_no_word_for_survive_it(value: float, text: str) -> None:
    """Strict parsers take our documents, alone and nested, and what comes back is the same number."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    document = {"value": json_number(value), "attributes": plain({"loss": value, "of": [value, {"again": value}]})}
    read_back = json.loads(json.dumps(document, allow_nan=False), parse_constant=refuse)
    assert read_back == {"value": text, "attributes": {"loss": text, "of": [text, {"again": text}]}}
    assert repr(float(read_back["value"])) == repr(value)


# ---- C59, C60, C61, C65, C84: hooks ------------------------------------------------------------------


class Residual(torch.nn.Module):
    """Adds in place."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.convolution(batch)
        output += batch
        return output


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3), torch.nn.ReLU(inplace=True)),
        Residual,
        lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3), torch.nn.Hardtanh(inplace=True), Residual()),
    ],
)
def test_c59_models_that_work_in_place_go_on_working(watch: Watch, make: Callable[[], torch.nn.Module]) -> None:
    """The gradients are the same to the last bit."""

    def gradients(*, watched: bool) -> list[bytes]:
        torch.manual_seed(0)
        model = make()
        if watched:
            watch(model, torch.optim.SGD(model.parameters(), 0.1))
        model(torch.randn(1, 3, 4, 4)).sum().backward()
        return [parameter.grad.numpy().tobytes() for parameter in model.parameters() if parameter.grad is not None]

    assert gradients(watched=True) == gradients(watched=False) != []


def test_c60_a_watched_model_can_be_saved_and_copied(watch: Watch, recorded: Callable[[], list[Recording]]) -> None:
    """torch.save, pickle and deepcopy work while it is watched, and what a copy does is not recorded."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    run = watch(model, optimizer, scaler)

    def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    train(model, optimizer, scaler)
    torch.save(model, io.BytesIO())
    for twins in (copy.deepcopy((model, optimizer, scaler)), pickle.loads(pickle.dumps((model, optimizer, scaler)))):
        train(*twins)
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
    run.finish()
    (found,) = recorded()
    assert sorted(found.values("opt.steps")) == [0]


def test_c61_a_model_compiled_before_it_is_watched_still_gives_its_gradients(
    watch: Watch, recorded: Callable[[], list[Recording]]
) -> None:
    """Also where the first compiled call came before the watch; and the graphs are no more than without it."""
    import torch._dynamo.utils

    def graphs(*, watched: bool) -> tuple[int, int]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.manual_seed(0)
        model = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), backend="eager")
        model(torch.ones(2, 4)).sum().backward()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        run = watch(model, optimizer) if watched else None
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        if run is not None:
            run.finish()
        counters = torch._dynamo.utils.counters
        return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())

    assert graphs(watched=True) == graphs(watched=False)
    (found,) = recorded()
    assert sorted(found.frames) == [0, 1, 2]
    assert set(found.frames[0].layers) == {"0.weight", "0.bias"}


def test_c65_watching_again_is_watching_once(watch: Watch, recorded: Callable[[], list[Recording]]) -> None:
    """Five times over, one record per step, and after the end no hook."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(5):
        run = watch(model, optimizer)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    run.finish()
    assert sum(len(found.values("opt.steps")) for found in recorded()) == metrics("c65")["records_per_step"]
    hooks = len(model._forward_pre_hooks) + len(model._forward_hooks) + len(optimizer._optimizer_step_pre_hooks)
    assert hooks == metrics("c65")["hooks_after_detach"]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["script", "trace"])
def test_c84_scripted_and_traced_modules_give_their_gradients(
    watch: Watch, recorded: Callable[[], list[Recording]], kind: str
) -> None:
    """Whatever hooks they refuse."""
    plain_model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    model = torch.jit.script(plain_model) if kind == "script" else torch.jit.trace(plain_model, torch.ones(1, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = watch(model, optimizer)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    run.finish()
    (found,) = recorded()
    assert set(found.frames[0].layers) == {"0.weight", "0.bias"}
    assert not found.events("agent_degraded")


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_c84_a_watched_model_can_be_scripted_and_traced(watch: Watch) -> None:
    """Exporting a model while it is watched works, and prints no warning of ours."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    watch(model, torch.optim.SGD(model.parameters(), 0.1))
    batch = torch.ones(1, 2)
    assert torch.jit.script(model)(batch).tolist() == model(batch).tolist()
    assert torch.jit.trace(model, batch)(batch).tolist() == model(batch).tolist()


# ---- C64, C76, C82: tensors and names of other kinds ---------------------------------------------------


def test_c64_the_sketch_of_a_distributed_tensor_is_of_its_shard(process_group: None) -> None:
    """No collective is started: it is this rank's part, and says what its norm is."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    model(torch.ones(2, 4)).sum().backward()
    gradient: Any = model[0].weight.grad
    low, high = metrics("c64")["grad.norm.local"]
    assert low <= halfscope.sketch_of(gradient).norm <= high
    assert halfscope.sketch_of(gradient).norm == pytest.approx(gradient.to_local().double().norm().item())


@pytest.fixture
def process_group() -> Iterator[None]:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_c76_wrapped_models_have_the_names_of_plain_ones(process_group: None) -> None:
    """Through DDP, DataParallel, torch.compile and both: all four names in common."""

    def net() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))

    ddp = torch.nn.parallel.DistributedDataParallel
    models = [
        net(),
        ddp(net()),
        torch.nn.DataParallel(net()),
        torch.compile(net(), backend="eager"),
        torch.compile(ddp(net()), backend="eager"),
    ]
    names = [set(parameter_names({"model": model}).values()) for model in models]
    assert len(set.intersection(*names)) == metrics("c76")["names.common"]


def test_c82_a_sparse_gradient_is_what_it_stands_for() -> None:
    """Repeated indices are added up, and what is not stored is zero."""
    embedding = torch.nn.Embedding(10, 4, sparse=True)
    embedding(torch.tensor([1, 1, 3])).sum().backward()
    gradient: Any = embedding.weight.grad
    sketch = halfscope.sketch_of(gradient)
    low, high = metrics("c82")["grad.norm.sparse"]
    assert low <= sketch.norm <= high
    assert (int(sketch.n), int(sketch.zeros)) == (40, 32)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, dtype=torch.cfloat),
        lambda: torch.ones(3, 4).t(),
        lambda: torch.ones(4).expand(3, 4),
        lambda: torch.tensor(2.0),
        lambda: torch.ones(0, 3),
        lambda: torch.ones(4, dtype=torch.float8_e4m3fn),
        lambda: torch.ones(2, 2).to_sparse(),
        lambda: torch.ones(2, 2).to_sparse_csr(),
    ],
    ids=["complex", "transposed", "expanded", "scalar", "empty", "fp8", "coo", "csr"],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
def test_c82_tensors_of_odd_kinds_do_not_raise(make: Callable[[], torch.Tensor]) -> None:
    """Every element is counted once; of a complex number both parts are."""
    tensor = make()
    sketch = halfscope.sketch_of(tensor)
    assert int(sketch.n) == tensor.numel() * (2 if tensor.is_complex() else 1)
    assert int(sketch.nonfinite) == 0
