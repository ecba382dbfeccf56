"""Alerts: what fires and what has fired, acknowledging, silences, and the stretches of a run for its charts.

Must not evaluate nor send. Invariant: following `next_cursor` to its end yields every alert that was there at the first
page once, also while new ones fire.
"""

from __future__ import annotations

import difflib
import re
import secrets
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request

from halfscope_server.api.alert_models import (
    AlertBands,
    AlertItem,
    AlertList,
    SilenceBody,
    SilenceItem,
    SilenceList,
)
from halfscope_server.api.auth import wall_clock_us
from halfscope_server.api.guard import bearer_token
from halfscope_server.api.problems import NOT_FOUND, RESPONSES, RUN_RESPONSES
from halfscope_server.api.runs import ExistingRun
from halfscope_server.api.services import Services, ServicesNow
from halfscope_server.errors import InvalidRequest, NotFound
from halfscope_server.live import alerts as shown
from halfscope_server.store.types import EpisodeRow, SilenceRow

router = APIRouter(prefix="/api/v1", tags=["alerts"], responses=RESPONSES)

State = Literal["pending", "firing", "resolved", "no_data", "error"]
AlertId = Annotated[str, Path(max_length=128, description="Id of an alert")]
MAX_BANDS = 500
MAX_CHARS = {"rule": 64, "run": 64, "layer": 512}
"""Of what a silence names."""


@router.get("/alerts")
def list_alerts(
    services: ServicesNow,
    state: Annotated[
        list[State] | None, Query(description="Any of these states; all but pending when none is given")
    ] = None,
    run: Annotated[str, Query(max_length=64, description="Of this run alone")] = "",
    rule: Annotated[str, Query(max_length=64, description="Of this rule alone")] = "",
    before: Annotated[str, Query(max_length=200, description="`next_cursor` of the page before")] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> AlertList:
    """Alerts, those that began last first, with the bell's numbers."""
    rows = services.store.alerts.episodes(
        states=state or ("firing", "resolved", "no_data", "error"),
        run_id=run or None,
        rule_id=rule or None,
        before=_decoded(before) if before else None,
        limit=limit + 1,
    )
    page = rows[:limit]
    return AlertList.model_validate(
        {
            "alerts": shown.describe(services.store, page),
            "counts": shown.counts(services.store),
            "next_cursor": _cursor(page[-1]) if len(rows) > limit else None,
        }
    )


@router.get("/alerts/{alert}", responses=NOT_FOUND)
def get_alert(alert: AlertId, services: ServicesNow) -> AlertItem:
    """One alert with its evidence and what became of its notifications."""
    return _described(services, services.store.alerts.episode(alert), alert)


@router.post("/alerts/{alert}/acknowledge", responses=NOT_FOUND)
def acknowledge_alert(alert: AlertId, request: Request, services: ServicesNow) -> AlertItem:
    """Say that somebody has seen it: it is not sent again, and the bell no longer counts it. Who was first stays."""
    episode = services.store.alerts.acknowledge(alert, _who(request, services), now_us=wall_clock_us())
    services.hub.alerts_changed()
    return _described(services, episode, alert)


@router.get("/runs/{run}/alerts", responses=RUN_RESPONSES)
def list_alert_bands(view: ExistingRun, services: ServicesNow) -> AlertBands:
    """Where rules fired on a run, the newest 500, to be laid over its charts."""
    states = ("firing", "resolved", "no_data", "error")
    rows = services.store.alerts.episodes(states=states, run_id=view.run_id, limit=MAX_BANDS)
    return AlertBands.model_validate({"bands": shown.bands(rows)})


@router.get("/silences")
def list_silences(services: ServicesNow) -> SilenceList:
    """The silences that hold now, oldest first."""
    rows = services.store.alerts.silences(wall_clock_us())
    return SilenceList(silences=[_silence(services, row) for row in rows])


@router.post("/silences", status_code=201)
def add_silence(body: SilenceBody, services: ServicesNow) -> SilenceItem:
    """Send nothing for what matches, until it ends or is lifted; the pages go on showing it."""
    if not (body.rule or body.run or body.layer or body.everything):
        raise InvalidRequest(
            "neither rule, run nor layer is given, which would silence every alert; expected one of them, or "
            "`everything` set to true"
        )
    for name, most in MAX_CHARS.items():
        _check_text(name, getattr(body, name), most)
    _check_text("comment", body.comment.strip(), 500)
    _check_there(services, body)
    now_us = wall_clock_us()
    row = SilenceRow(
        silence_id=secrets.token_hex(8),
        rule_id=body.rule,
        run_id=body.run,
        layer=body.layer,
        comment=body.comment.strip(),
        created_us=now_us,
        until_us=None if body.for_s is None else now_us + round(body.for_s * 1e6),
    )
    services.store.alerts.put_silence(row)
    services.hub.alerts_changed()
    return _silence(services, row)


@router.delete("/silences/{silence}", status_code=204, responses=NOT_FOUND)
def lift_silence(silence: Annotated[str, Path(max_length=64)], services: ServicesNow) -> None:
    """End a silence: what still goes on and was not sent because of it is sent now."""
    if not services.store.alerts.lift_silence(silence):
        raise NotFound(f"there is no silence {silence}; it may have ended or been lifted already")
    services.hub.alerts_changed()


def _check_there(services: Services, body: SilenceBody) -> None:
    """A name that is mistyped would silence nothing, without anybody noticing before the next night."""
    if body.rule and services.store.alerts.rule(body.rule) is None:
        names = {row.rule_id for row in services.store.alerts.rules()}
        near = difflib.get_close_matches(body.rule, sorted(names), n=3, cutoff=0.5)
        expected = f"did you mean {' or '.join(near)}?" if near else "expected the id of a rule, as its page shows it"
        raise InvalidRequest(f'there is no rule "{body.rule}"; {expected}')
    if body.run and services.store.get_run(body.run) is None:
        named = [row.run_id for row in services.store.list_runs() if row.name == body.run]
        expected = (
            f"that is the name of {' and '.join(named[:3])}: give the id" if named else "expected the id of a run"
        )
        raise InvalidRequest(f'there is no run "{body.run}"; {expected}')


def _described(services: Services, episode: EpisodeRow | None, alert: str) -> AlertItem:
    if episode is None:
        raise NotFound(f"there is no alert {alert}; those of deleted runs are deleted with them")
    return AlertItem.model_validate(shown.describe(services.store, [episode])[0])


def _silence(services: Services, row: SilenceRow) -> SilenceItem:
    run = services.store.get_run(row.run_id) if row.run_id else None
    return SilenceItem.model_validate(shown.silence_item(row, run))


def _who(request: Request, services: Services) -> str:
    """Name of the token that asks; browsers are signed in without a name."""
    token = bearer_token(request)
    return (services.authenticator.token_name(token) if token else None) or "a browser"


def _check_text(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InvalidRequest(f"{name} has {len(text):,} characters; expected at most {most}")
    if "\x00" in text:
        raise InvalidRequest(f"{name} holds a NUL character, which cannot be kept; take it out")
    if text and not text.strip():
        raise InvalidRequest(f"{name} holds only spaces, which match nothing; leave it empty for all of them")


def _cursor(row: EpisodeRow) -> str:
    return f"{row.first_us}.{row.episode_id}"


def _decoded(cursor: str) -> tuple[int, str]:
    first_us, dot, episode_id = cursor.partition(".")
    if not (dot and re.fullmatch(r"[0-9]{1,18}", first_us) and re.fullmatch(r"[!-~]+", episode_id)):
        raise InvalidRequest(f"{cursor!r} is no cursor; pass next_cursor of the page before, unchanged")
    return int(first_us), episode_id
