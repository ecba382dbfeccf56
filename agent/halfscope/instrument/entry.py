"""`halfscope.watch`: from the user's objects to a run that records.

Invariant: wrong arguments raise here, at once, with what to do; whatever fails after that is warned of and the
training goes on.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from halfscope import config as configuration
from halfscope._version import __version__
from halfscope.config import AgentConfig
from halfscope.guard import Guard
from halfscope.instrument import environment, exits, names, ranks, resuming, sharing
from halfscope.instrument.facts import FactTeller
from halfscope.instrument.feeding import InputWatch
from halfscope.instrument.flat import FlatParameters
from halfscope.instrument.interval import SketchInterval
from halfscope.instrument.report import Reporter
from halfscope.instrument.run import Run
from halfscope.instrument.sketching import LayerNumbers, SketchTaker
from halfscope.instrument.standstill import Standstill
from halfscope.instrument.updating import UpdateTaker
from halfscope.instrument.watched import WatchedOptimizer, WatchedScaler
from halfscope.instrument.watcher import Watcher
from halfscope.record.layout import StreamPlace
from halfscope.record.recorder import Recorder
from halfscope.wire.messages import Start, StreamInfo

if TYPE_CHECKING:
    from halfscope.instrument.ddp.watching import ReductionWatch

logger = logging.getLogger("halfscope")

DRAIN_S = 1.5
"""How long the end of a run waits for the sender. With what else an end does it takes a training no more than 2 s."""

_active: dict[int, Run] = {}
"""id of each watched model, optimizer and scaler to the run that watches it; entries live as long as the run does."""


def watch(
    model: Any,
    optimizer: Any,
    scaler: Any = None,
    *,
    project: str | None = None,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    tags: Sequence[str] | None = None,
    precision: str | None = None,
    baseline: str | Run | None = None,
    start_step: int = 0,
    resume: str | Run | None = None,
    every: int | None = None,
    budget_share: float | None = None,
    mode: str | None = None,
    server: str | None = None,
    run_id: str | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Run:
    """Watches a training from now on. The one call that is needed; the run ends by itself when the process does.

    Args:
        model: the module, or a list or dict of modules.
        optimizer: the optimizer, or a list or dict of them; without a scaler, a step is a step of the first.
        scaler: the GradScaler, or a list or dict of them, if there is one.
        project: groups runs; HALFSCOPE_PROJECT, else `default`.
        name: what the run is called; HALFSCOPE_NAME, else its id.
        config: anything worth keeping: hyperparameters, data set, batch size.
        tags: words to find it by.
        precision: its label, where halfscope cannot see it by itself: `FP32`, `TF32`, `FP16-AMP`, `FP16`, `BF16-AMP`,
            `BF16`, `mixed`.
        baseline: the run to compare this one with, by id, by name (the newest other one of the project) or as `watch`
            returned it; HALFSCOPE_BASELINE.
        start_step: number of the first step, for a training that continues.
        resume: the run that this training continues, by id or as `watch` returned it: what is recorded now is its next
            attempt. Steps that are done again are kept beside the old ones, and the new ones shown. An optimizer that
            begins without the state it had, or a scaler at another scale, is told as an event.
        every: gradients are sketched at every N-th step, and at every skipped one; by default every 10th on a CPU and
            every 50th on a device, and more rarely where that costs more than the budget. Everything else is measured
            at every step.
        budget_share: what sketches may cost, as a share of step time, where `every` says nothing;
            HALFSCOPE_BUDGET_SHARE, else 0.005.
        mode: `online`, `offline` (journal only) or `disabled`; HALFSCOPE_MODE, else `online`.
        server: address of the server; HALFSCOPE_SERVER, else what `halfscope login` stored, else a local one.
        run_id: the run to continue or to join; HALFSCOPE_RUN_ID, else a new one.
        directory: where the journal is written; HALFSCOPE_DIR, else `~/.halfscope/journals`.

    Returns:
        The run: `run.step(loss=...)`, `run.log(...)`, `run.finish()`.

    Raises:
        TypeError, ValueError: an argument that cannot be taken, with what would be.
    """
    settings = configuration.resolve(
        project=project,
        name=name,
        config=config,
        tags=tags,
        precision=precision,
        baseline=baseline,
        start_step=start_step,
        resume=resume,
        every=every,
        budget_share=budget_share,
        mode=mode,
        server=server,
        run_id=run_id,
        directory=directory,
    )
    models = names.name_models(model)
    optimizers = names.name_optimizers(optimizer)
    for label, item in optimizers.items():
        _check_initialised(label, item)
    scalers = names.name_scalers(scaler)
    earlier: Sequence[tuple[int, StreamPlace]] = ()
    if settings.mode != "disabled":
        is_named = settings.is_resumed or run_id is not None or bool(os.environ.get("HALFSCOPE_RUN_ID"))
        settings, earlier = _placed(settings, is_named=is_named)
    url = _page(settings)
    if settings.mode == "disabled":
        return Run(run_id=settings.run_id, name=settings.name, url=url)
    keys = [id(item) for item in (*models.values(), *optimizers.values(), *scalers.values())]
    _supersede(keys)
    return _start(settings, models, optimizers, scalers, url, keys, earlier)


def report_scaler(name: str = "scaler", *, scale: float | torch.Tensor, **report: Any) -> None:
    """As `Run.report_scaler`, to the run that began last of those that are on; without one it does nothing."""
    if (run := newest_run()) is not None:
        run.report_scaler(name, scale=scale, **report)


def newest_run() -> Run | None:
    """The run that began last of those that are on."""
    return next(reversed(_active.values()), None)


def _check_initialised(name: str, optimizer: torch.optim.Optimizer) -> None:
    if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise TypeError(
            f"optimizer {name!r} ({type(optimizer).__name__}) lacks what torch.optim.Optimizer.__init__ sets; "
            "expected one whose own __init__ calls super().__init__(params, defaults)"
        )


def _placed(settings: AgentConfig, *, is_named: bool) -> tuple[AgentConfig, Sequence[tuple[int, StreamPlace]]]:
    """With this process's place among several, the run that they share, and the number of its attempt; and what this
    rank has recorded of the run on this machine before.

    Args:
        is_named: the run's id was given, so that it may have been begun before, here or elsewhere.
    """
    place = ranks.find()
    shared = None if is_named else ranks.shared_run_id(place, settings.directory)
    run_id = shared or settings.run_id
    earlier: Sequence[tuple[int, StreamPlace]] = ()
    attempt = place.attempt
    if is_named:
        earlier = resuming.earlier_streams(settings.directory, run_id, place.rank)
        attempt = _named_attempt(settings, place, max((number for number, _ in earlier), default=-1))
    placed = dataclasses.replace(
        settings,
        run_id=run_id,
        name=run_id if settings.name == settings.run_id else settings.name,
        rank=place.rank,
        local_rank=place.local_rank,
        world_size=place.world_size,
        attempt=attempt,
        place_source=place.source if place.world_size > 1 else "",
    )
    return placed, earlier


def _named_attempt(settings: AgentConfig, place: ranks.Place, last: int) -> int:
    """
    Args:
        last: the newest attempt that this rank has recorded on this machine; -1: none.
    """
    if place.world_size == 1:
        # A clock that was set back is no reason to go behind what is here already.
        return max(ranks.attempt_at(time.time_ns() // 1000), last + 1)
    if not settings.is_resumed:
        return place.attempt  # an id that ranks are given because they find none by themselves
    shared = ranks.job_attempt(place, settings.directory)
    return max(place.attempt, last + 1) if shared is None else shared


def _page(settings: AgentConfig) -> str:
    """The run's page at the server that the sender ships to."""
    from halfscope.send import endpoint

    try:
        server = endpoint.resolve(settings.server).url
    except ValueError:
        if settings.server is not None:
            raise
        server = endpoint.DEFAULT_URL  # what was kept is no address; the sender tells of it
    return f"{server}/runs/{settings.run_id}"


def _supersede(keys: Sequence[int]) -> None:
    older = {id(run): run for key in keys if (run := _active.get(key)) is not None}
    for run in older.values():
        logger.warning(
            "halfscope: run %s ends here: watch was called again for the same model, optimizer or scaler. "
            "Call run.finish() before, to end it without this notice.",
            run.name,
        )
        run.end("superseded")


def _start(
    settings: AgentConfig,
    models: Mapping[str, torch.nn.Module],
    optimizers: Mapping[str, torch.optim.Optimizer],
    scalers: Mapping[str, torch.amp.GradScaler],
    url: str,
    keys: Sequence[int],
    earlier: Sequence[tuple[int, StreamPlace]],
) -> Run:
    flats = FlatParameters(models)
    recorder = _open_recorder(settings, models, flats)
    several = len(optimizers) > 1
    watched_optimizers = [
        WatchedOptimizer(index, name, item, labelled=several) for index, (name, item) in enumerate(optimizers.items())
    ]
    enabled = {name: item for name, item in scalers.items() if item.is_enabled()}
    watched_scalers = [
        WatchedScaler(index, name, item, labelled=len(enabled) > 1)
        for index, (name, item) in enumerate(enabled.items())
    ]
    guard = Guard(lambda probe, error: facts.degraded(watcher.step, probe, error))
    for watched in watched_optimizers:
        watched.units = flats.by_id
    parameter_names = _parameter_names(models, watched_optimizers, flats)
    facts = FactTeller(
        recorder,
        models=models,
        names=parameter_names,
        optimizers=watched_optimizers,
        scalers=watched_scalers,
        all_scalers=scalers,
        given_precision=settings.precision,
        flats=flats,
        baseline=settings.baseline,
    )
    trained = [parameter for watched in watched_optimizers for parameter in watched.parameters()]
    known = dict(flats.shares())

    def share(replicas: Collection[torch.nn.Module]) -> None:
        known.update(sharing.replicated(replicas))
        for watched in watched_optimizers:
            watched.share(lambda parameter: sharing.of(parameter, known))

    share(models.values())
    layers = LayerNumbers(
        recorder,
        lambda: {**parameter_names, **names.parameter_names(models)},
        trained,
        lambda parameter: sharing.of(parameter, known),
    )
    interval = SketchInterval(
        every=settings.every, budget_share=settings.budget_share, elsewhere_ns=lambda: recorder.packing_ns
    )
    sketches = SketchTaker(recorder, layers, interval, has_scaler=bool(watched_scalers))
    reporter = Reporter(
        recorder,
        guard,
        facts,
        sketches,
        names=parameter_names,
        optimizers=watched_optimizers,
        scalers=watched_scalers,
        is_first_rank=settings.rank == 0,
    )
    reductions = _reductions(models, parameter_names, interval, guard)
    if reductions is not None:
        reductions.share = guard.wrap("communication", share)
        _tell_reductions(reductions, reporter, recorder, layers, watched_optimizers, guard)
    watcher = Watcher(
        models=models,
        optimizers=watched_optimizers,
        scalers=watched_scalers,
        reporter=reporter,
        guard=guard,
        sketches=sketches,
        updates=UpdateTaker(layers, interval),
        inputs=InputWatch(interval, guard),
        start_step=settings.start_step,
        reductions=reductions,
    )

    check = guard.wrap("resume", _check_resumed)(
        settings, earlier, recorder, watched_optimizers, watched_scalers, guard
    )

    def ended(run: Run) -> None:
        if check is not None:
            check.detach()
        for key in keys:
            if _active.get(key) is run:
                del _active[key]
        if settings.mode == "online":
            _drain(settings)

    run = Run(
        run_id=settings.run_id,
        name=settings.name,
        url=url,
        watcher=watcher,
        recorder=recorder,
        guard=guard,
        on_end=ended,
    )
    for key in keys:
        _active[key] = run
    if settings.world_size > 1:
        recorder.facts({"ranks": {"source": settings.place_source}})
        recorder.look = guard.wrap("standstill", Standstill(recorder, watcher, settings.start_step).look)
    guard.wrap("facts", facts.started)(settings.start_step, demo="demo" in settings.tags)
    guard.wrap("fingerprint of the weights", facts.weights)(watcher.rings)
    guard.wrap("hooks", watcher.attach)()
    exits.register(run)
    if settings.mode == "online":
        guard.wrap("sender", _ensure_sender)(settings.directory, settings.server)
        recorder.tend = partial(guard.wrap("sender", _keep_sender), settings.directory, settings.server)
        if settings.rank == 0:
            print(f"halfscope: watching run {settings.name} -> {url}", file=sys.stderr)
    return run


def _reductions(
    models: Mapping[str, torch.nn.Module], names: Mapping[int, str], interval: SketchInterval, guard: Guard
) -> ReductionWatch | None:
    """What looks at gradients before and after their reduction; None in a process that trains by itself."""
    if not ranks.is_joined():
        return None
    from halfscope.instrument.ddp.watching import ReductionWatch

    return ReductionWatch(models, names, interval, guard)


def _tell_reductions(
    reductions: ReductionWatch,
    reporter: Reporter,
    recorder: Recorder,
    layers: LayerNumbers,
    optimizers: Sequence[WatchedOptimizer],
    guard: Guard,
) -> None:
    from halfscope.instrument.ddp.telling import ReductionTeller

    num_ranks = torch.distributed.get_world_size()
    teller = ReductionTeller(recorder, reductions, layers, optimizers, num_ranks=num_ranks)
    reporter.tell_reductions = guard.wrap("communication", teller.tell)
    reductions.tell_hooks = guard.wrap("communication", teller.hooks)


def _open_recorder(settings: AgentConfig, models: Mapping[str, torch.nn.Module], flats: FlatParameters) -> Recorder:
    now_us = time.time_ns() // 1000
    mesh = ranks.mesh_of(parameter for model in models.values() for parameter in model.parameters())
    return Recorder.open(
        directory=settings.directory,
        run_id=settings.run_id,
        stream=settings.stream,
        offline=settings.mode == "offline",
        info=StreamInfo(
            rank=settings.rank,
            world_size=settings.world_size,
            attempt=settings.attempt,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_us=now_us,
            local_rank=settings.local_rank,
            mesh=mesh | flats.mesh() | ranks.pipeline_place(models.values()),
        ),
        start=Start(
            time_us=now_us,
            project=settings.project,
            name=settings.name,
            config=dict(settings.config),
            tags=list(settings.tags),
            environment=environment.describe(),
            start_step=settings.start_step,
            agent_version=__version__,
        ),
    )


def _parameter_names(
    models: Mapping[str, torch.nn.Module], optimizers: Sequence[WatchedOptimizer], flats: FlatParameters
) -> Mapping[int, str]:
    found = {key: name for key, name in names.parameter_names(models).items() if key not in flats.by_id}
    found |= flats.names()
    for watched in optimizers:
        for at, parameter in enumerate(watched.parameters()):
            # An optimizer may hold what no given module does: it gets a name all the same.
            found.setdefault(id(parameter), f"{watched.name}.parameter.{at}")
    return found


def _check_resumed(
    settings: AgentConfig,
    earlier: Sequence[tuple[int, StreamPlace]],
    recorder: Recorder,
    optimizers: Sequence[WatchedOptimizer],
    scalers: Sequence[WatchedScaler],
    guard: Guard,
) -> resuming.ResumeCheck | None:
    """What looks whether a resumed training has what it had; None for one that begins."""
    if not settings.is_resumed:
        return None
    scales = resuming.last_scales(earlier[-1][1], settings.start_step) if earlier and scalers else {}
    check = resuming.ResumeCheck(recorder, scalers, scales, start_step=settings.start_step)
    check.attach(optimizers, guard)
    return check


def _ensure_sender(directory: Path, server: str | None) -> None:
    from halfscope.send import ensure_sender

    ensure_sender(directory=directory, server=server)


def _keep_sender(directory: Path, server: str | None) -> None:
    from halfscope.send import keep_sender

    keep_sender(directory=directory, server=server)


def _drain(settings: AgentConfig) -> None:
    from halfscope.send import drain

    drain(settings.run_id, settings.stream, DRAIN_S, directory=settings.directory)
