"""`halfscope.watch` from the user's side: arguments, steps and logs, ends, and what is left behind."""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import halfscope
import pytest
import torch
import torch.nn.utils.clip_grad as clip_module

from tests.helpers.preloaded import Preloaded

Net = Callable[[], torch.nn.Sequential]


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, each: Any = None) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).pow(2).sum().backward()
        optimizer.step()
        if each is not None:
            each(step)


@pytest.fixture
def made(net: Net) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = net()
    return model, torch.optim.SGD(model.parameters(), 0.01)


# ---- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mode": "loud"}, ValueError, "mode is 'loud'; expected one of online, offline, disabled"),
        ({"precision": "fp16"}, ValueError, "expected one of FP32, TF32, FP16-AMP"),
        ({"tags": "demo"}, TypeError, r"expected a list of strings, as in tags=\['demo'\]"),
        ({"config": object()}, TypeError, r"for argparse: config=vars\(args\)"),
        ({"every": 0}, ValueError, "every is 0; expected at least 1"),
        ({"every": 1.5}, TypeError, "every is 1.5; expected a whole number"),
        ({"budget_share": 0}, ValueError, "budget_share is 0; expected a share of step time above 0 and up to 1"),
        ({"budget_share": True}, TypeError, "budget_share is True; expected a share"),
        ({"start_step": -1}, ValueError, "start_step is -1; expected at least 0"),
        ({"start_step": 2**60}, ValueError, "expected at most 4503599627370496"),
        ({"run_id": "../../etc"}, ValueError, "run_id is '../../etc'; expected 16 characters"),
        ({"name": 3}, TypeError, "name is 3; expected a string"),
    ],
)
def test_a_wrong_option_raises_at_once_and_says_what_to_give(
    made: Any, tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Nothing is written, nothing is hooked."""
    model, optimizer = made
    with pytest.raises(error, match=message):
        halfscope.watch(model, optimizer, **{"mode": "offline", "directory": tmp_path / "j", **options})
    assert not (tmp_path / "j").exists()
    assert not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (lambda m, o: (o, m), TypeError, r"model 'SGD' is SGD; expected a torch.nn.Module|model .* is SGD"),
        (lambda m, o: (m, m), TypeError, "expected a torch.optim.Optimizer"),
        (lambda m, o: (m, o, o), TypeError, "expected a torch.amp.GradScaler"),
        (lambda m, o: (m, []), TypeError, "optimizer is empty"),
        (lambda m, o: ([], o), TypeError, "model is empty"),
        (lambda m, o: (m, [o, o]), ValueError, "are the same object; give it once"),
        (lambda m, o: (None, o), TypeError, "is NoneType; expected a torch.nn.Module"),
    ],
)
def test_objects_of_the_wrong_kind_raise_at_once(
    made: Any, tmp_path: Path, arguments: Any, error: type[Exception], message: str
) -> None:
    """Also when they only stand in the wrong order."""
    with pytest.raises(error, match=message):
        halfscope.watch(*arguments(*made), mode="offline", directory=tmp_path)


def test_an_optimizer_that_never_called_its_base_is_refused(net: Net, tmp_path: Path) -> None:
    """It has no groups and no hooks: said at once, not found out at the first step."""

    class Forgetful(torch.optim.SGD):
        def __init__(self, parameters: Any) -> None:
            self.mine = list(parameters)

    model = net()
    with pytest.raises(TypeError, match=r"'Forgetful' .* calls super\(\).__init__\(params, defaults\)"):
        halfscope.watch(model, Forgetful(model.parameters()), mode="offline", directory=tmp_path / "j")
    assert not (tmp_path / "j").exists()


@pytest.mark.parametrize(
    ("given", "kept", "running", "expected"),
    [
        (None, None, None, "http://127.0.0.1:65504"),
        (None, None, "http://127.0.0.1:4000", "http://127.0.0.1:4000"),
        (None, "https://team.example", "http://127.0.0.1:4000", "https://team.example"),
        ("https://given.example/", "https://team.example", None, "https://given.example"),
    ],
)
def test_the_address_of_a_run_is_the_one_the_sender_ships_to(
    made: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    kept: str | None,
    running: str | None,
    expected: str,
) -> None:
    """As given, else what `halfscope login` kept, else the server of this machine, else the default."""
    monkeypatch.setenv("HALFSCOPE_HOME", str(tmp_path))
    monkeypatch.delenv("HALFSCOPE_SERVER", raising=False)
    if kept:
        (tmp_path / "credentials.json").write_text(json.dumps({"url": kept, "token": "t"}))
    if running:
        (tmp_path / "server.json").write_text(json.dumps({"url": running, "pid": os.getpid()}))
    run = halfscope.watch(*made, mode="offline", server=given, directory=tmp_path / "j")
    run.finish()
    assert run.url == f"{expected}/runs/{run.id}"


def test_an_address_that_is_none_raises_where_it_was_given_and_not_where_it_was_kept(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file of ours stops no training."""
    monkeypatch.setenv("HALFSCOPE_HOME", str(tmp_path))
    monkeypatch.delenv("HALFSCOPE_SERVER", raising=False)
    with pytest.raises(ValueError, match="'nowhere' is no server address"):
        halfscope.watch(*made, mode="offline", server="nowhere", directory=tmp_path / "j")
    (tmp_path / "credentials.json").write_text(json.dumps({"url": "nowhere"}))
    run = halfscope.watch(*made, mode="offline", directory=tmp_path / "j")
    run.finish()
    assert run.url == f"http://127.0.0.1:65504/runs/{run.id}"


@pytest.mark.parametrize(("mode", "rank", "told"), [("online", 0, True), ("online", 1, False), ("offline", 0, False)])
def test_watching_online_says_once_where_to_look(
    made: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    rank: int,
    told: bool,
) -> None:
    """One line on stderr, of the first rank; nothing where no server is to get anything."""
    monkeypatch.setattr("halfscope.instrument.entry._ensure_sender", lambda directory, server: None)
    monkeypatch.setattr("halfscope.instrument.entry._drain", lambda settings: None)
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = halfscope.watch(*made, name="night 3", mode=mode, server="http://h:1", directory=tmp_path / "j")
    train(*made, 2)
    run.finish()
    line = f"halfscope: watching run night 3 -> http://h:1/runs/{run.id}\n"
    assert capsys.readouterr().err == (line if told else "")


def test_disabled_hooks_nothing_and_writes_nothing(made: Any, tmp_path: Path) -> None:
    """The same three lines, at no cost."""
    model, optimizer = made
    before = optimizer._optimizer_step_pre_hooks.copy(), model._forward_pre_hooks.copy(), sys.excepthook
    run = halfscope.watch(model, optimizer, mode="disabled", directory=tmp_path / "j")
    assert (optimizer._optimizer_step_pre_hooks, model._forward_pre_hooks, sys.excepthook) == before
    run.step(loss=1.0)
    run.log(a=1)
    run.finish()
    assert not (tmp_path / "j").exists()


def test_the_environment_sets_what_arguments_do_not(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HALFSCOPE_MODE, HALFSCOPE_DIR, HALFSCOPE_PROJECT, HALFSCOPE_NAME."""
    for name, value in (("MODE", "offline"), ("DIR", str(tmp_path / "j")), ("PROJECT", "p"), ("NAME", "n")):
        monkeypatch.setenv(f"HALFSCOPE_{name}", value)
    run = halfscope.watch(*made)
    assert run.name == "n"
    run.finish()
    assert (tmp_path / "j" / run.id).is_dir()


# ---- steps and logs -------------------------------------------------------------------------------


def test_step_and_log_after_the_update_are_of_that_step(watching: Any, made: Any) -> None:
    """The documented loop."""
    run = watching(*made)

    def each(step: int) -> None:
        run.step(loss=torch.tensor(float(step)), samples=10, tokens=100)
        run.log(accuracy=step / 10)

    train(*made, 4, each)
    recorded = watching.read()
    assert recorded.series("loss") == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}
    assert recorded.series("accuracy") == {0: 0.0, 1: 0.1, 2: 0.2, 3: 0.3}
    times = recorded.series("time.step_s")
    for name, count in (("throughput.samples_per_s", 10), ("throughput.tokens_per_s", 100)):
        assert all(math.isclose(rate * times[step], count) for step, rate in recorded.series(name).items())
    assert recorded.facts["samples_source"] == "declared"


def test_step_before_backward_is_of_the_coming_step(watching: Any, made: Any) -> None:
    """A loop that reports the loss as soon as it has it gets it at the right step."""
    model, optimizer = made
    run = watching(model, optimizer)
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        run.step(loss=float(step))
        loss.backward()
        optimizer.step()
    assert watching.read().series("loss") == {0: 0.0, 1: 1.0, 2: 2.0}


def test_samples_of_micro_batches_add_up(watching: Any, made: Any) -> None:
    """`run.step(samples=)` once per micro-batch."""
    model, optimizer = made
    run = watching(model, optimizer)
    for _ in range(2):
        for _ in range(4):
            model(torch.ones(2, 4)).sum().backward()
            run.step(samples=8)
        optimizer.step()
    recorded = watching.read()
    times = recorded.series("time.step_s")
    rates = recorded.series("throughput.samples_per_s")
    assert [round(rates[step] * times[step]) for step in (0, 1)] == [32, 32]


def test_batch_sizes_are_written_when_they_change(watching: Any, made: Any) -> None:
    """What is in force at each step adds up to what was declared, so that samples and tokens seen can be counted."""
    declared = [(8, 80), (8, 80), (5, 80), (8, 81), (8, 81)]
    run = watching(*made)
    train(*made, 5, lambda step: run.step(samples=declared[step][0], tokens=declared[step][1]))
    recorded = watching.read()
    assert recorded.series("samples") == {0: 8.0, 2: 5.0, 3: 8.0}
    assert recorded.series("tokens") == {0: 80.0, 3: 81.0}
    kinds = {series.name: series.kind for series in recorded.declared.values()}
    assert kinds["samples"] == kinds["tokens"] == "state"


def test_batch_size_is_the_inferred_one_where_nobody_declares(watching: Any, made: Any) -> None:
    """The leading size of the model's input, from the first step on; of tokens nothing is made up."""
    model, optimizer = made
    watching(model, optimizer)
    for size in (3, 3, 2):
        model(torch.ones(size, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    recorded = watching.read()
    assert recorded.series("samples") == {0: 3.0, 2: 2.0}
    assert "tokens" not in recorded.names()


def test_log_takes_mappings_keywords_nesting_and_several_values(watching: Any, made: Any) -> None:
    """Nested mappings give names with prefixes; tensors and numpy numbers are numbers."""
    run = watching(*made)
    train(*made, 1)
    run.log({"a": 1, "val": {"loss": torch.tensor(0.5), "top": {"1": True}}}, b=2.5, c=math.nan)
    recorded = watching.read()
    assert recorded.series("a") == {0: 1.0}
    assert recorded.series("b") == {0: 2.5}
    assert recorded.series("val/loss") == {0: 0.5}
    assert recorded.series("val/top/1") == {0: 1.0}
    assert math.isnan(recorded.series("c")[0])


def test_of_several_values_of_one_step_the_last_counts(watching: Any, made: Any) -> None:
    """One point per step and series, whatever was logged in between."""
    run = watching(*made)

    def each(step: int) -> None:
        run.log(accuracy=0.25, other=1.0)
        run.log({"accuracy": torch.tensor(0.5)})
        run.log(accuracy=0.75 + step)

    train(*made, 3, each)
    recorded = watching.read()
    assert recorded.series("accuracy") == {0: 0.75, 1: 1.75, 2: 2.75}
    assert recorded.series("other") == {0: 1.0, 1: 1.0, 2: 1.0}


def test_what_is_logged_between_backward_and_step_is_of_that_step(watching: Any, made: Any) -> None:
    """The backward pass begins the next step; before it, what is logged belongs to the last one."""
    model, optimizer = made
    run = watching(model, optimizer)
    for step in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).pow(2).sum()
        run.log(before=float(step))
        loss.backward()
        run.log(between=float(step))
        optimizer.step()
        run.log(after=float(step))
    recorded = watching.read()
    assert recorded.series("between") == recorded.series("after") == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}
    # Two of them in step 0, of which the last counts: nothing came before the first step.
    assert recorded.series("before") == {0: 1.0, 1: 2.0, 2: 3.0}


def test_a_logged_name_of_ours_says_where_it_comes_from(watching: Any, made: Any) -> None:
    """`loss` is the loss; any other built-in name keeps its meaning, and the user's has a label."""
    run = watching(*made)
    train(*made, 1)
    run.log({"loss": 7.0, "grad.norm": -1.0})
    recorded = watching.read()
    assert recorded.series("loss") == {0: 7.0}
    assert recorded.series("grad.norm", source="log") == {0: -1.0}
    assert recorded.series("grad.norm")[0] > 0


def test_a_value_that_is_no_number_is_left_out_with_one_warning(
    watching: Any, made: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The training goes on, and so do the other calls."""
    run = watching(*made)
    train(*made, 2, lambda step: run.log(text="abc"))
    run.log(ok=1.0)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "expected a number" in caplog.text
    assert watching.read().series("ok") == {1: 1.0}


@pytest.mark.parametrize("wrong", [[1, 2], 5, "abc", torch.ones(3), {"text": "abc", "ok": 1.0}])
def test_whatever_is_logged_nothing_raises_and_the_rest_is_kept(watching: Any, made: Any, wrong: Any) -> None:
    """Something that is no mapping is left out; of a mapping only what is no number."""
    run = watching(*made)
    train(*made, 1)
    run.log(wrong, ok=1.0) if isinstance(wrong, dict) else run.log(wrong)
    recorded = watching.read()
    assert recorded.series("ok") == ({0: 1.0} if isinstance(wrong, dict) else {})
    assert len(recorded.kinds("agent_degraded")) == 1


def test_names_that_count_up_end_where_a_server_would_refuse_rows(
    watching: Any, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The known names go on."""
    monkeypatch.setattr("halfscope.instrument.run.MAX_LOGGED_SERIES", 2)
    run = watching(*made)
    train(*made, 3, lambda step: run.log({f"step {step}": 1.0, "step 0": 2.0} if step else {"step 0": 1.0}))
    recorded = watching.read()
    assert recorded.series("step 0") == {0: 1.0, 1: 2.0, 2: 2.0}
    assert recorded.series("step 1") == {1: 1.0}
    assert recorded.series("step 2") == {}
    assert len(recorded.series("grad.norm")) == 3


def test_a_run_continues_at_its_start_step(watching: Any, made: Any) -> None:
    """A resumed training says where it goes on, and gets the next attempt number."""
    run = watching(*made, start_step=100, run_id=None)
    train(*made, 2)
    run.finish()
    again = watching(*made, start_step=50, run_id=run.id)
    assert again.id == run.id
    train(*made, 1)
    first, second = watching.read_all()
    assert (first.steps(), second.steps()) == ([100, 101], [50])


def test_what_the_user_gave_is_in_the_start_record(watching: Any, made: Any) -> None:
    """Project, name, tags, configuration and environment."""
    watching(*made, project="p", name="n", tags=["a", "b"], config={"lr": 0.1, "nested": {"x": [1, 2]}})
    start = watching.read().start
    assert (start.project, start.name, start.tags) == ("p", "n", ["a", "b"])
    assert start.config == {"lr": 0.1, "nested": {"x": [1, 2]}}
    assert start.environment["torch"] == torch.__version__


# ---- ends -----------------------------------------------------------------------------------------


def test_finish_writes_the_end_and_later_calls_do_nothing(watching: Any, made: Any) -> None:
    """Training on after `finish` is not recorded."""
    run = watching(*made)
    train(*made, 3)
    run.finish()
    run.finish()
    run.step(loss=1.0)
    run.log(a=1.0)
    train(*made, 3)
    recorded = watching.read()
    assert (recorded.end.outcome, recorded.end.step) == ("finished", 2)
    assert recorded.steps() == [0, 1, 2]


def test_what_holds_a_run_can_be_copied_and_saved(watching: Any, made: Any) -> None:
    """A module with the run on it: the copy's run does nothing, the run itself goes on."""
    model, _ = made
    model.run = watching(*made)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert (copied.run.id, copied.run.url) == (model.run.id, model.run.url)
        copied.run.log(other=1.0)
        copied.run.finish()
    train(*made, 2, lambda step: model.run.log(own=float(step)))
    recorded = watching.read()
    assert recorded.series("own") == {0: 0.0, 1: 1.0}
    assert "other" not in recorded.names()


def test_a_with_block_ends_the_run_with_its_exception(watching: Any, made: Any) -> None:
    """Type and message, and the exception goes on."""

    def diverges(step: int) -> None:
        if step == 1:
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"), watching(*made):
        train(*made, 5, diverges)
    end = watching.read().end
    assert (end.outcome, end.error_type, end.message, end.step) == ("exception", "RuntimeError", "boom", 1)


def test_a_second_watch_supersedes_the_first_with_one_notice(
    watching: Any, made: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Notebooks run their cells again: each step is recorded once, by the newer run."""
    watching(*made)
    train(*made, 2)
    watching(*made)
    train(*made, 3)
    first, second = watching.read_all()
    assert (first.end.outcome, first.steps()) == ("superseded", [0, 1])
    assert (second.end.outcome, second.steps()) == ("finished", [0, 1, 2])
    assert len(caplog.records) == 1


def test_an_uncaught_exception_is_recorded_and_reaches_the_earlier_hook(
    python: Preloaded, tmp_path: Path, read: Any
) -> None:
    """The user's own excepthook still runs, and the traceback is printed as ever."""
    done = run_program(
        python,
        tmp_path,
        "previous = sys.excepthook\n"
        "def hook(*error): print('mine'); previous(*error)\n"
        "sys.excepthook = hook\n"
        "run = halfscope.watch(model, optimizer)\n"
        "train(2)\n"
        "raise ValueError('diverged')\n",
    )
    assert done.returncode == 1
    assert done.stdout == "mine\n"
    assert "ValueError: diverged" in done.stderr
    (recorded,) = read(tmp_path / "journals")
    assert (recorded.end.outcome, recorded.end.error_type, recorded.end.message) == (
        "exception",
        "ValueError",
        "diverged",
    )
    assert recorded.steps() == [0, 1]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("thread = threading.Thread(target=fails); thread.start(); thread.join()\n", "exception"),
        ("thread = threading.Thread(target=fails); thread.start(); thread.join()\ntrain(1)\n", "finished"),
        ("thread = threading.Thread(target=train, args=(2,)); thread.start(); thread.join()\n", "finished"),
        ("train(2); thread = threading.Thread(target=helper); thread.start(); thread.join()\n", "finished"),
        ("thread = threading.Thread(target=leaves); thread.start(); thread.join()\n", "finished"),
    ],
)
def test_an_exception_in_a_thread_ends_the_run_where_that_thread_trained(
    python: Preloaded, tmp_path: Path, read: Any, body: str, outcome: str
) -> None:
    """Not where it did something else, or where another one trained on; the user's own hook still runs."""
    done = run_program(
        python,
        tmp_path,
        "import threading\n"
        "threading.excepthook = lambda details: print('mine', details.exc_type.__name__)\n"
        "def fails():\n    train(2); raise ValueError('diverged')\n"
        "def helper():\n    raise ValueError('no matter')\n"
        "def leaves():\n    train(2); sys.exit()\n"
        "run = halfscope.watch(model, optimizer)\n" + body,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "mine ValueError\n" if "fails" in body or "helper" in body else "mine SystemExit\n" if "leaves" in body else ""
    )
    (recorded,) = read(tmp_path / "journals")
    assert recorded.end.outcome == outcome
    assert recorded.end.message == ("diverged" if outcome == "exception" else "")
    assert recorded.steps() == ([0, 1, 2] if "train(1)" in body else [0, 1])


def test_the_end_of_the_process_finishes_the_run(python: Preloaded, tmp_path: Path, read: Any) -> None:
    """Three lines are enough: nobody has to call `finish`."""
    done = run_program(python, tmp_path, "run = halfscope.watch(model, optimizer)\ntrain(3)\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (recorded,) = read(tmp_path / "journals")
    assert (recorded.end.outcome, recorded.steps()) == ("finished", [0, 1, 2])


def test_a_forked_child_neither_records_nor_ends_the_run(python: Preloaded, tmp_path: Path, read: Any) -> None:
    """A child that trains and exits leaves the parent's run alone."""
    done = run_program(
        python,
        tmp_path,
        "run = halfscope.watch(model, optimizer)\n"
        "train(1)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    train(5); run.log(x=1); run.finish(); sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "train(1)\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    (recorded,) = read(tmp_path / "journals")
    assert (recorded.end.outcome, recorded.steps()) == ("finished", [0, 1])


def test_sigterm_is_the_users(python: Preloaded, tmp_path: Path, read: Any) -> None:
    """No handler of ours: the process dies of it, and the journal has no end record (the sender tells)."""
    done = run_program(
        python,
        tmp_path,
        "import signal\n"
        "before = signal.getsignal(signal.SIGTERM)\n"
        "run = halfscope.watch(model, optimizer)\n"
        "train(1)\n"
        "assert signal.getsignal(signal.SIGTERM) is before\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n",
    )
    assert done.returncode == -15
    (recorded,) = read(tmp_path / "journals")
    assert recorded.end is None


def run_program(python: Preloaded, tmp_path: Path, body: str) -> subprocess.CompletedProcess[str]:
    """A training script in a process of its own, journalling to `tmp_path / journals`."""
    program = (
        "import os, sys, torch, halfscope\n"
        "torch.set_num_threads(1)\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.01)\n"
        "def train(steps):\n"
        "    for _ in range(steps):\n"
        "        model(torch.ones(2, 4)).sum().backward(); optimizer.step()\n" + body
    )
    env = {**os.environ, "HALFSCOPE_MODE": "offline", "HALFSCOPE_DIR": str(tmp_path / "journals")}
    return python.run(["-c", program], env=env)


# ---- what is left behind ----------------------------------------------------------------------------


def test_nothing_is_left_behind_after_finish(watching: Any, net: Net) -> None:
    """Hook lists, classes and module globals are what they were."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu")

    def state() -> Any:
        return (
            [dict(m._forward_pre_hooks) for m in model.modules()],
            [dict(m._forward_pre_hooks_with_kwargs) for m in model.modules()],
            [p._post_accumulate_grad_hooks for p in model.parameters()],
            dict(optimizer._optimizer_step_pre_hooks),
            dict(optimizer._optimizer_step_post_hooks),
            type(scaler),
            sorted(scaler.__dict__),
            clip_module._get_total_norm,
            clip_module._group_tensors_by_device_and_dtype,
            sys.excepthook,
            threading.excepthook,
        )

    before = state()
    run = watching(model, optimizer, scaler)
    assert state() != before
    for _ in range(3):
        scaler.scale(model(torch.ones(2, 4)).sum()).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    run.finish()
    assert state() == before
    assert pickle.dumps(model)


def test_a_failing_probe_is_switched_off_and_the_training_goes_on(
    watching: Any, made: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning, one event; everything else is still recorded."""

    def fails(*arguments: Any, **options: Any) -> None:
        raise ZeroDivisionError("no norm today")

    monkeypatch.setattr("halfscope.probes.gradients.of_squares", fails)
    watching(*made)
    train(*made, 5)
    recorded = watching.read()
    (event,) = recorded.kinds("agent_degraded")
    assert event.attributes == {"probe": "gradients", "error": "ZeroDivisionError: no norm today"}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert recorded.steps() == [0, 1, 2, 3, 4]
    assert recorded.series("opt.steps")[4] == 5.0
    assert recorded.series("grad.norm") == {}
