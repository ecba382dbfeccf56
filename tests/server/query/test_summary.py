"""What a run's row, sentence and verdict say, for runs as people have them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from halfscope_server.api.models import RunList as RunListModel
from halfscope_server.api.models import RunSummary as RunSummaryModel
from halfscope_server.query import RunSummary, RunView, Views, health_strip, list_runs, summarise
from halfscope_server.query.strip import CLEAN, CRIMSON, QUIET
from halfscope_server.store.store import Store

WriteRun = Callable[..., Any]
NOW_US = 1_700_000_000_000_000 + 10**9


def view_of(store: Store, run_id: str = "run1") -> RunView:
    """The newest view of a run that is there."""
    view = Views(store).get(run_id)
    assert view is not None
    return view


def summary_of(store: Store, run_id: str = "run1") -> RunSummary:
    """A run's summary, as the API would take it."""
    summary = summarise(view_of(store, run_id), 320, NOW_US)
    RunSummaryModel.model_validate(asdict(summary))
    return summary


def texts(summary: RunSummary) -> list[str]:
    """The sentence, piece by piece."""
    return [chip.text for chip in summary.sentence]


def write_healthy(writer: Any, num_steps: int = 12_401, interval: int = 2000) -> list[int]:
    """An FP16 run whose scaler settles and then probes once per growth interval; returns the skipped steps."""
    steps = np.arange(num_steps)
    settling, probes = [0, 1, 2], list(range(interval, num_steps, interval))
    skipped = np.isin(steps, settling + probes)
    writer.points("loss", steps, 2.3 * np.exp(-steps / 5000))
    writer.points("amp.scale", steps, np.where(skipped, 65536.0, 32768.0), kind="state")
    writer.points("amp.skipped", steps, skipped, kind="flag")
    writer.points("time.step_s", steps, 0.038, unit="s")
    writer.points("throughput.samples_per_s", steps, 1240.0, unit="samples/s")
    writer.points("halfscope.cost_share", steps, 0.003, unit="share")
    for step in settling:
        writer.skip(step, "settling", scale=65536.0, scale_next=32768.0, loss_finite=True)
        writer.event("scale_backoff", step, scale=65536.0, scale_next=32768.0)
    for step in probes:
        writer.skip(step, "probe", scale=65536.0, scale_next=32768.0, loss_finite=True)
        writer.event("scale_backoff", step, scale=65536.0, scale_next=32768.0)
        writer.event("scale_growth", step - 1, scale=32768.0, scale_next=65536.0)
    writer.facts(precision="FP16-AMP", scalers=[{"name": "scaler", "enabled": True}])
    writer.commit()
    return settling + probes


def test_a_healthy_run_reads_as_the_design_says(lite: Store, write_run: WriteRun) -> None:
    """Step, scale, skips, speed and cost in one sentence; healthy, with no reason to give."""
    skipped = write_healthy(write_run())
    summary = summary_of(lite)
    assert texts(summary) == [
        "step 12,400",
        "scale 2¹⁵",
        "9 skips (3 settling, 6 probe)",
        "1.24k samples/s",
        "watching costs 0.3%",
    ]
    assert summary.sentence[1].label == "loss scale 2 to the 15th, 32,768"
    assert (summary.health.word, summary.health.severity, summary.health.reasons) == ("healthy", "ok", [])
    assert (summary.precision, summary.precision_role, summary.state_text) == ("FP16-AMP", "fp16", "Live")
    assert (summary.skips.total, summary.skips.settling, summary.skips.probe) == (len(skipped), 3, 6)
    assert summary.skips.share == pytest.approx(9 / 12_401)
    assert summary.skips.longest_streak == 3
    assert summary.steps_per_s == pytest.approx(1 / 0.038)


def test_the_strip_of_a_healthy_run_is_calm(lite: Store, write_run: WriteRun) -> None:
    """Base line and small ticks only, with a sentence and a clock."""
    write_healthy(write_run(), num_steps=20_000, interval=100)
    strip = summary_of(lite).strip
    assert strip is not None
    assert set(base64.b64decode(strip.cells)) <= {CLEAN, QUIET}
    assert max(base64.b64decode(strip.heights)) < 110
    assert strip.summary == "20,000 steps, 202 skips (3 settling, 199 probe), no NaN or Inf applied"
    assert strip.ranges == []
    assert len(strip.clock) <= 65
    assert strip.clock[0][0] == 0
    assert strip.clock[-1][0] == 19_999
    assert strip.clock == sorted(strip.clock)


def test_the_skips_of_summary_strip_and_sentence_are_the_same(lite: Store, write_run: WriteRun) -> None:
    """Read-outs of all cells add up to the total."""
    skipped = write_healthy(write_run(), num_steps=5000, interval=300)
    summary = summary_of(lite)
    assert summary.strip is not None
    told = sum(int(text.split(": ")[1].split()[0]) for text in summary.strip.texts.values())
    assert told == summary.skips.total == len(skipped)


def test_a_run_whose_scale_still_settles_is_settling_not_unhealthy(lite: Store, write_run: WriteRun) -> None:
    """Skips at the start are normal: info."""
    writer = write_run()
    writer.points("loss", range(20), 1.0)
    writer.points("amp.scale", range(20), 1024.0, kind="state")
    for step in range(6):
        writer.skip(step, "settling", loss_finite=True)
    writer.commit()
    health = summary_of(lite).health
    assert (health.word, health.severity) == ("settling", "info")


def write_streak(writer: Any, first: int, last: int, end: bool) -> None:
    """A streak as the agent tells it: the first two skips as single, the event at the third."""
    for step in range(first, last + 1):
        writer.skip(step, "single" if step < first + 2 else "streak")
    writer.event(
        "bad_streak",
        first + 2,
        "warning",
        first_step=first,
        num_skips=3,
        reason="in_a_row",
        origin="backward",
        origin_layer="block.3.mlp.fc2",
    )
    if end:
        writer.event("bad_streak_end", last + 50, first_step=first, last_step=last, num_skips=last - first + 1)


def test_an_open_streak_makes_a_run_unhealthy_and_names_its_origin(lite: Store, write_run: WriteRun) -> None:
    """All skips in its range count as streak, the first two too."""
    writer = write_run()
    writer.points("loss", range(1000), 1.0)
    writer.points("amp.scale", range(1000), 1024.0, kind="state")
    write_streak(writer, 900, 960, end=False)
    writer.commit()
    summary = summary_of(lite)
    assert (summary.health.word, summary.health.severity) == ("unhealthy", "warning")
    assert summary.health.reasons == [
        "a streak of skips since step 900 (61 skips); it began in the backward pass at block.3.mlp.fc2"
    ]
    assert (summary.skips.streak, summary.skips.single, summary.skips.longest_streak) == (61, 0, 61)
    assert summary.strip is not None
    assert [(r.first_step, r.last_step, r.severity) for r in summary.strip.ranges] == [(900, 960, "warning")]


def test_a_short_streak_long_ago_is_told_but_no_alarm(lite: Store, write_run: WriteRun) -> None:
    """Five skips among ten thousand, nine thousand steps back."""
    writer = write_run()
    writer.points("loss", range(10_000), 1.0)
    write_streak(writer, 500, 504, end=True)
    writer.commit()
    health = summary_of(lite).health
    assert (health.word, health.severity) == ("healthy", "info")
    assert health.reasons[0].startswith("a streak of skips from step 500 to 504 (5 skips)")


def test_applied_nan_is_never_forgotten(lite: Store, write_run: WriteRun) -> None:
    """One step in a hundred thousand, ninety thousand steps ago: critical, and a crimson cell at 320 cells."""
    writer = write_run()
    writer.points("loss", range(100_000), 1.0)
    writer.event("nonfinite_applied", 12_345, "critical", ["block.1"])
    writer.commit()
    summary = summary_of(lite)
    assert (summary.health.word, summary.health.severity) == ("unhealthy", "critical")
    assert summary.health.reasons == ["NaN or Inf was applied at step 12,345"]
    assert summary.strip is not None
    assert base64.b64decode(summary.strip.cells).count(CRIMSON) == 1


def test_a_caught_nan_loss_is_told_apart_from_an_applied_one(lite: Store, write_run: WriteRun) -> None:
    """Step 5 was withheld by the scaler, step 7 was not."""
    writer = write_run()
    writer.points("loss", range(1000), 1.0)
    writer.points("amp.scale", range(1000), 1.0, kind="state")
    for step in (5, 7):
        writer.event("loss_nonfinite", step, "warning", value="NaN", caught=step == 5)
    writer.skip(5, "single", loss_finite=False)
    writer.commit()
    strip = health_strip(view_of(lite), 1000)
    assert strip is not None
    assert "caught" in strip.texts[5]
    assert "applied" in strip.texts[7]
    assert [(r.first_step, r.severity) for r in strip.ranges] == [(5, "warning"), (7, "critical")]
    assert {strip.classes[base64.b64decode(strip.cells)[step]].role for step in (5, 7)} == {"nonfinite"}
    assert strip.summary.endswith("loss NaN or Inf in 1 step, applied, loss NaN or Inf in 1 step, caught")


def test_a_nan_loss_that_reached_no_weight_is_no_poison(lite: Store, write_run: WriteRun) -> None:
    """A micro-batch left out long ago, the step applied with finite gradients: said, and held against nobody."""
    writer = write_run()
    writer.points("loss", range(3000), [1.0] * 100 + [float("nan")] + [1.0] * 2899)
    writer.event("loss_nonfinite", 100, "warning", value="NaN", caught=True)
    writer.commit()
    health = summary_of(lite).health
    assert (health.word, health.severity) == ("healthy", "info")
    assert health.reasons == ["the loss was NaN or Inf in 1 step, last at step 100; none of it reached the weights"]


def test_a_run_whose_loss_stays_nan_after_an_applied_step_has_failed(lite: Store, write_run: WriteRun) -> None:
    """The weights are lost; the word says so while the process still runs."""
    writer = write_run()
    writer.points("loss", range(1000), [1.0] * 900 + [float("nan")] * 100)
    for step in range(900, 1000):
        writer.event("loss_nonfinite", step, "critical", value="NaN", caught=False)
    writer.commit()
    summary = summary_of(lite)
    assert (summary.health.word, summary.health.severity) == ("failed", "critical")
    assert summary.health.reasons[0] == "the loss has been NaN or Inf for the last 100 steps: the weights are lost"
    assert summary.loss == "NaN"
    assert "loss NaN" in texts(summary)


def test_a_scale_under_one_is_pointed_out(lite: Store, write_run: WriteRun) -> None:
    """A scale that small is a sign that scaling is not the remedy."""
    writer = write_run()
    writer.points("loss", range(100), 1.0)
    writer.points("amp.scale_next", range(100), 2.0**-3, kind="state")
    writer.points("amp.scale", range(100), 2.0**-2, kind="state")
    writer.commit()
    summary = summary_of(lite)
    assert "fell to 2⁻³" in summary.health.reasons[0]
    assert "scale 2⁻³" in texts(summary)


def test_a_run_without_a_scaler_speaks_of_no_scale(lite: Store, write_run: WriteRun) -> None:
    """A BF16 run has neither scale nor skips in its sentence."""
    writer = write_run()
    writer.points("loss", range(100), 1.0)
    writer.facts(precision="BF16-AMP")
    writer.commit()
    summary = summary_of(lite)
    assert texts(summary) == ["step 99"]
    assert (summary.scale, summary.precision_role, summary.health.word) == (None, "bf16", "healthy")


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ({"type": "cuda", "name": "NVIDIA H100"}, "NVIDIA H100"),
        ({"type": "cpu", "name": "x86_64"}, "CPU"),
        ("mps", "mps"),
        (None, ""),
    ],
)
def test_a_device_is_called_by_its_name(lite: Store, write_run: WriteRun, device: object, name: str) -> None:
    """As people look for it in the table."""
    writer = write_run()
    writer.facts(device=device)
    writer.commit()
    assert summary_of(lite).device == name


def test_a_run_that_waits_says_what_was_attached(lite: Store, write_run: WriteRun) -> None:
    """No step, no strip, no verdict."""
    writer = write_run()
    writer.facts(precision="FP16-AMP", parameters={"num_elements": 1_240_000})
    writer.commit()
    summary = summary_of(lite)
    assert texts(summary) == ["waiting for the first step", "1.24M parameters attached", "FP16-AMP"]
    assert (summary.strip, summary.health.word, summary.first_step) == (None, "waiting", None)


def test_a_failed_run_says_by_what(lite: Store, write_run: WriteRun) -> None:
    """Type in the state, message in the reason."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.end("exception", 9, "RuntimeError", "CUDA out of memory")
    writer.commit()
    summary = summary_of(lite)
    assert summary.state_text == "Failed: RuntimeError"
    assert (summary.health.word, summary.health.reasons[0]) == ("failed", "RuntimeError: CUDA out of memory")


def test_lost_contact_says_since_when(lite: Store, write_run: WriteRun) -> None:
    """Counted from the last word of the agent, not from when the server gave up waiting."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.commit(now_us=NOW_US - 130 * 10**6)
    lite.mark_lost_contact(silent_since_us=NOW_US - 60 * 10**6, now_us=NOW_US - 30 * 10**6)
    assert summarise(view_of(lite), None, NOW_US).state_text == "Lost contact 2 min ago"


def test_runs_are_listed_live_first_then_newest_and_filtered(lite: Store, write_run: WriteRun) -> None:
    """Each filter alone, and the counts before filters."""
    for place, (precision, project, outcome) in enumerate(
        (("FP32", "digits", "finished"), ("FP16-AMP", "digits", ""), ("BF16-AMP", "words", "finished"))
    ):
        writer = write_run(
            f"run{place}", name=f"Name {place}", project=project, now_us=NOW_US + place, tags=[project[0]]
        )
        writer.points("loss", range(10), 1.0)
        writer.facts(precision=precision)
        if outcome:
            writer.end(outcome, 9)
        writer.commit()
    views = Views(lite)

    def ids(**filters: Any) -> list[str]:
        found = list_runs(lite, views, at_us=NOW_US, **filters)
        RunListModel.model_validate(asdict(found))
        assert found.total == 3
        return [run.id for run in found.runs]

    assert ids() == ["run1", "run2", "run0"]
    assert ids(search="NAME 2") == ["run2"]
    assert ids(search="run0") == ["run0"]
    assert ids(projects=["digits"]) == ["run1", "run0"]
    assert ids(precisions=["BF16-AMP", "FP32"]) == ["run2", "run0"]
    assert ids(states=["finished"]) == ["run2", "run0"]
    assert ids(tags=["w"]) == ["run2"]
    found = list_runs(lite, views)
    assert (found.projects, found.tags, found.precisions) == (
        ["digits", "words"],
        ["d", "w"],
        ["BF16-AMP", "FP16-AMP", "FP32"],
    )
