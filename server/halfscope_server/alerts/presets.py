"""Rules ready to be taken over, each with its threshold and the reason for it.

Owns the recommended set. Must not evaluate. Invariant: a training that does what a healthy one does, settling, probing
and noise included, raises none of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from halfscope_server.alerts.rule import Rule, Span
from halfscope_server.alerts.sentences import sentence

NAN, SCALE, UNDERFLOW = "NaN and Inf", "Loss scale", "Underflow"
LOSS, SPEED, RUN, RANKS = "Loss and gradients", "Speed", "The run", "Many ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Mirrors the API, but for `taken`."""

    rule: Rule
    title: str
    group: str
    sentence: str


@cache
def presets() -> tuple[Preset, ...]:
    """In the order in which they are offered."""
    return tuple(_presets())


def find(preset_id: str) -> Preset | None:
    """The preset of this id."""
    return next((preset for preset in presets() if preset.rule.id == preset_id), None)


def _preset(group: str, preset_id: str, title: str, **rule: Any) -> Preset:
    made = Rule(id=preset_id, name=title, preset=preset_id, **rule)
    return Preset(rule=made, title=title, group=group, sentence=sentence(made))


def _presets() -> Iterable[Preset]:
    yield from _nonfinite()
    yield from _scale()
    yield from _gradients()
    yield from _speed_and_run()
    yield from _ranks()


def _nonfinite() -> Iterable[Preset]:
    yield _preset(
        NAN,
        "nonfinite-applied",
        "NaN or Inf applied",
        metric="nonfinite_rate.applied",
        threshold=0,
        severity="critical",
        keep_firing=Span(steps=50),
        message="NaN or Inf reached the weights or the optimizer's state at step {first_step}",
        reason="One such step can spoil weights and optimizer state for good, and without a loss scaler nothing holds"
        " it back. It has no harmless form, so any is too many.",
    )
    yield _preset(
        NAN,
        "nonfinite-caught",
        "NaN or Inf caught too often",
        metric="nonfinite_rate.caught_unexpected",
        aggregation="rate",
        window=Span(steps=200),
        threshold=0.01,
        clear=0.005,
        message="NaN or Inf in {value} of the last 200 steps, settling and probing left out; the scaler caught them",
        reason="A healthy scaler meets about one overflow per growth interval, when it tries twice the scale, and some"
        " while it settles. More than 1% besides these is not the scale.",
    )
    yield _preset(
        NAN,
        "skip-streak",
        "Skips in a row",
        metric="skip_streak.unexpected",
        comparison=">=",
        threshold=8,
        severity="critical",
        message="{value} withheld in a row, up to step {step}: nothing is learnt",
        reason="Each skip halves the scale. Eight in a row, settling left out, are 2⁸ without an end in sight: the"
        " cause is not the scale, and the training stands still.",
    )
    yield _preset(
        NAN,
        "loss-nonfinite",
        "Loss is NaN or Inf",
        metric="loss_nonfinite",
        threshold=0,
        keep_firing=Span(steps=50),
        message="the loss is NaN or infinite at step {first_step}",
        reason="A smaller loss scale cannot help: the forward pass itself left the range, or the data hold NaN.",
    )
    yield _preset(
        NAN,
        "input-nonfinite",
        "NaN or Inf in the data",
        metric="input_nonfinite",
        threshold=0,
        severity="critical",
        message="the input of step {first_step} holds NaN or Inf, and the step did not cope with it",
        reason="Looks like a precision problem everywhere behind it, and is none. Missing values that a model replaces"
        " itself are left out.",
    )
    yield _preset(
        NAN,
        "input-out-of-range",
        "Input out of FP16's range",
        metric="input_of_fp16",
        threshold=1,
        message="the largest input is {value} of the largest number of FP16 at step {first_step}",
        reason="FP16 ends at 65,504: a larger input is infinite in the first layer that autocast runs in FP16.",
    )


def _scale() -> Iterable[Preset]:
    yield _preset(
        SCALE,
        "scale-below-one",
        "Loss scale below 1",
        metric="amp.scale_next",
        threshold=1,
        comparison="<",
        severity="critical",
        message="the loss scale fell to {value} at step {first_step}: it makes gradients smaller",
        reason="A scale below 1 pushes gradients towards FP16's floor. True gradients lie above FP16's range, or the"
        " overflow has another cause than the scale.",
    )
    yield _preset(
        SCALE,
        "scale-below-floor",
        "Loss scale too small for the batch size",
        metric="scale_over_floor",
        threshold=0,
        comparison="<",
        hold=Span(steps=200),
        message="the loss scale is under the floor for this batch size since step {first_step} ({value})",
        reason="Practitioners' floors: 2⁴ for batches under 256, 2⁸ up to 2,048, 2¹⁰ beyond, because the mean over a"
        " larger batch makes gradients smaller. For 200 steps, so that a dip that heals itself says nothing.",
    )
    yield _preset(
        SCALE,
        "scale-collapsing",
        "Loss scale collapsing",
        metric="scale_fall",
        comparison=">=",
        threshold=4,
        clear=2,
        severity="critical",
        message="the loss scale lost {value} within 200 steps, at step {step}",
        reason="Four doublings lost within 200 steps, settling left out, take 8,000 clean steps to win back at"
        " PyTorch's growth interval; meanwhile small gradients underflow.",
    )


def _gradients() -> Iterable[Preset]:
    yield _preset(
        UNDERFLOW,
        "underflow",
        "Underflow",
        metric="underflow_share.measured",
        threshold=0.05,
        clear=0.02,
        message="{layer} loses {value} of its gradient to zero at step {step}, at least",
        reason="Practitioners' mark: above 5% lost, layers stop learning what is small. GradScaler never sees it: it"
        " looks for infinities alone.",
    )
    yield _preset(
        LOSS,
        "grad-norm-vanished",
        "Gradient vanished",
        metric="grad_norm.of_loss",
        aggregation="max",
        window=Span(steps=100),
        threshold=1e-8,
        comparison="<",
        message="no gradient norm of the last 100 steps was above {threshold}, up to step {step}",
        reason="Below 1e-8 an update no longer changes float32 weights of usual size. Over 100 steps, because single"
        " batches can have a gradient of zero; where the loss itself is 0, nothing is left to learn.",
    )
    yield _preset(
        LOSS,
        "loss-oscillation",
        "Loss oscillates",
        metric="loss_oscillation.smoothed",
        threshold=0.15,
        clear=0.1,
        hold=Span(steps=200),
        message="the loss swings by {value} of itself since step {first_step}",
        reason="Practitioners' mark: a healthy loss stays within 3% of its running median, beyond 15% it is unstable."
        " Noise from batch to batch is averaged out first, or small batches would always be beyond it.",
    )
    yield _preset(
        LOSS,
        "metric-below-best",
        "Metric below its own best",
        metric="val/accuracy",
        aggregation="below_best",
        threshold=0.1,
        clear=0.05,
        hold=Span(steps=200),
        message="val/accuracy is {value} below its own best since step {first_step}",
        reason="A model that was better once and stays 10% worse for 200 steps has diverged or overfits; a few poor"
        " evaluations in a row are common early on. Put the name of your own metric; for one that should fall, use the"
        " rise above its best.",
    )
    yield _preset(
        UNDERFLOW,
        "updates-lost",
        "Updates lost",
        metric="updates_lost",
        threshold=0,
        message="weights stored in 16 bits or less lose most of their updates, first told at step {first_step}",
        reason="At least half of a layer's steps, three sketched steps in a row, were too small to change its weights:"
        " it hardly learns. FP32 copies of the weights, or a larger step, help; of weights in FP32 nothing is told.",
    )


def _speed_and_run() -> Iterable[Preset]:
    yield _preset(
        SPEED,
        "throughput-drop",
        "Throughput dropped",
        metric="throughput",
        aggregation="ratio",
        window=Span(steps=200),
        threshold=0.8,
        clear=0.9,
        comparison="<",
        severity="info",
        hold=Span(seconds=300),
        message="throughput is at {value} of its usual since step {first_step}",
        reason="20% under the run's own median is more than noise: a wrong set-up of DDP was reported to cost 23%. For"
        " five minutes, so that what else a machine does now and then says nothing; others who stay there do cost the"
        " run that much. Name a baseline run to compare with that instead.",
    )
    yield _preset(
        RUN,
        "run-failed",
        "Training failed",
        metric="run_failed",
        threshold=0,
        severity="critical",
        message="the training failed at step {first_step}: it was killed, or an exception ended it",
        reason="Whoever waits for it waits in vain. Killed by the system, out of memory, or an error in the program;"
        " one that finishes or is stopped with Ctrl-C raises nothing.",
    )
    yield _preset(
        RUN,
        "no-data",
        "No data",
        metric="no_data",
        threshold=0,
        message="nothing is heard of the training since step {first_step}",
        reason="The agent was silent for longer than HALFSCOPE_LOST_CONTACT_S and did not say that it ended. A training"
        " that finishes raises nothing.",
    )
    yield _preset(
        RUN,
        "stall",
        "Training stalls",
        metric="stall",
        threshold=0,
        message="no step since step {first_step}, though the process is there",
        reason="The agent is there and no step was completed for far longer than a step takes: a deadlock, a collective"
        " that waits for a rank, a data loader that hangs.",
    )
    yield _preset(
        RUN,
        "lost-data",
        "Records lost",
        metric="lost_data",
        threshold=0,
        keep_firing=Span(steps=50),
        message="records were lost and cannot be delivered any more, at step {first_step}",
        reason="The picture has a gap: rules saw nothing of what lies in it.",
    )


def _ranks() -> Iterable[Preset]:
    yield _preset(
        RANKS,
        "rank-disagreement",
        "Ranks disagree",
        metric="rank_disagreement",
        threshold=0,
        severity="critical",
        keep_firing=Span(steps=50),
        message="a rank parts from the others at step {first_step}; the page Ranks names it",
        reason="Loss scale, skips, learning rate and weights are the same on all ranks of a healthy job. Where they"
        " part, gradients of different scale are averaged, or the replicas drift apart, silently. Own losses are no"
        " matter.",
    )
    yield _preset(
        RANKS,
        "rank-stuck",
        "A rank is stuck",
        metric="rank_stuck",
        threshold=0,
        message="the others wait for a rank that completes no step, told at step {step}; the page Ranks names it",
        reason="Its agent is there, the others have begun the next step, and none comes to its end: they wait in a"
        " collective. What is no longer than three times the longest pause before is not told.",
    )
    yield _preset(
        RANKS,
        "straggler",
        "A rank holds the others up",
        metric="straggler",
        threshold=0,
        severity="info",
        keep_firing=Span(steps=200),
        message="one rank computes for over 20% longer than the others since step {first_step}",
        reason="The whole job is as slow as its slowest rank. Judged on busy times without what was waited for, over 50"
        " steps, so a hiccup or a checkpoint raises nothing.",
    )
    yield _preset(
        RANKS,
        "comm-error",
        "Reduction is inexact",
        metric="comm_error",
        threshold=0.018,
        clear=0.009,
        message="the reduced gradient is off by {value}",
        reason="Above 1.8% practitioners report harm. Compressing to FP16 costs some 0.03%, to BF16 some 0.3%; more is"
        " an overflow, an underflow or a hook that approximates, like PowerSGD.",
    )
