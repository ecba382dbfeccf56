"""Rules: kept, checked, tried on stored runs, made of presets, and as YAML.

Must not evaluate by itself. Invariant: no rule is kept that has problems, whichever way it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query

from halfscope_server.alerts import presets
from halfscope_server.alerts.backtest import backtest
from halfscope_server.alerts.rule import TOLD_ONLY, Rule
from halfscope_server.alerts.sentences import sentence
from halfscope_server.alerts.validation import InvalidRule, Problem, check, check_among, parse
from halfscope_server.alerts.vocabulary import vocabulary
from halfscope_server.alerts.yaml import Imported, from_yaml, to_yaml
from halfscope_server.api.alert_models import (
    Backtest,
    BacktestBody,
    ImportResult,
    Preset,
    PresetChoice,
    PresetList,
    RuleCheck,
    RuleItem,
    RuleList,
    RuleProblem,
    RulesText,
    RuleVocabulary,
)
from halfscope_server.api.auth import wall_clock_us
from halfscope_server.api.problems import CONFLICT, NOT_FOUND, RESPONSES
from halfscope_server.api.services import Services, ServicesNow
from halfscope_server.errors import Conflict, InvalidRequest, NotFound
from halfscope_server.store.types import RuleRow

router = APIRouter(prefix="/api/v1/rules", tags=["alerts"], responses=RESPONSES)

RuleId = Annotated[str, Path(max_length=64, description="Id of a rule")]
MAX_RULES = 2000
RECOMMENDED = ("warning", "critical")
"""Severities of the presets that are taken over together; the rest are matters of taste."""


@router.get("")
def list_rules(services: ServicesNow) -> RuleList:
    """Every rule, by name, with what it is doing."""
    return RuleList(rules=_items(services, services.store.alerts.rules()))


@router.post("", status_code=201, responses=CONFLICT)
def add_rule(body: Rule, services: ServicesNow) -> RuleItem:
    """Make a rule; its id must be free."""
    (row,) = _keep(services, [body], expected_version=0)
    return _items(services, [row])[0]


# Routes with a word in place of an id come first: the first that fits is taken.
@router.get("/presets")
def list_presets(services: ServicesNow) -> PresetList:
    """Rules ready to be taken over, each with its threshold and the reason for it."""
    taken = _taken(services)
    return PresetList(
        presets=[
            Preset(
                rule=preset.rule,
                title=preset.title,
                group=preset.group,
                sentence=preset.sentence,
                taken=preset.rule.id in taken,
            )
            for preset in presets.presets()
        ]
    )


@router.post("/presets", responses=NOT_FOUND)
def take_over_presets(body: PresetChoice, services: ServicesNow) -> RuleList:
    """Make rules of presets; returns those that were made."""
    for name in body.ids:
        if presets.find(name) is None:
            raise NotFound(f"there is no preset {name!r}; GET /api/v1/rules/presets lists those there are")
    taken, ids = _taken(services), {row.rule_id for row in services.store.alerts.rules()}
    wanted = [
        preset.rule.model_copy(update={"id": _free(preset.rule.id, ids)})
        for preset in presets.presets()
        if preset.rule.id not in taken
        and (preset.rule.id in body.ids or (not body.ids and preset.rule.severity in RECOMMENDED))
    ]
    return RuleList(rules=_items(services, _keep(services, wanted, expected_version=0)))


@router.get("/vocabulary")
def get_rule_vocabulary(services: ServicesNow) -> RuleVocabulary:
    """What rules can be made of: derived metrics, the series of the newest runs, aggregations."""
    return RuleVocabulary.model_validate(vocabulary(services.store), from_attributes=True)


@router.post("/backtest")
def backtest_rule(body: BacktestBody, services: ServicesNow) -> Backtest:
    """When a rule would have fired on stored runs; nothing is kept or sent."""
    rule = _sound(body.rule)
    found = backtest(services.store, services.views, rule, body.runs, body.width_px)
    return Backtest.model_validate(found, from_attributes=True)


@router.post("/check")
def check_rule(body: Annotated[dict[str, Any], Body()], services: ServicesNow) -> RuleCheck:
    """A rule in words, or what is wrong with it by field."""
    problems = check(body) or _problems_among(services, [parse(body)])
    return RuleCheck(
        sentence="" if problems else sentence(parse(body)),
        problems=[RuleProblem(where=problem.where, text=problem.text) for problem in problems],
    )


@router.get("/yaml")
def export_rules(services: ServicesNow) -> RulesText:
    """All rules as YAML, for a file that is kept beside the code."""
    return RulesText(text=to_yaml(rule for row in services.store.alerts.rules() if (rule := _readable(row))))


@router.post("/yaml")
def import_rules(
    body: RulesText,
    services: ServicesNow,
    dry_run: Annotated[bool, Query(description="Only say what would be done")] = False,
) -> ImportResult:
    """Make and change rules as a text says; rules that it does not name stay. With any problem nothing is done."""
    imported = from_yaml(body.text)
    present = {row.rule_id: _readable(row) for row in services.store.alerts.rules()}
    created = [rule for rule in imported.rules if rule.id not in present]
    changed = [rule for rule in imported.rules if rule.id in present and present[rule.id] != rule]
    problems = imported.problems or _problems_among(services, [*created, *changed], is_list=True)
    if problems:
        created, changed, imported = [], [], Imported()
    elif not dry_run:
        _keep(services, [*created, *changed])
    return ImportResult(
        created=[rule.id for rule in created],
        changed=[rule.id for rule in changed],
        unchanged=[rule.id for rule in imported.rules if present.get(rule.id) == rule],
        problems=[RuleProblem(where=problem.where, text=problem.text) for problem in problems],
    )


@router.put("/{rule}", responses={**NOT_FOUND, **CONFLICT})
def change_rule(
    rule: RuleId,
    body: Rule,
    services: ServicesNow,
    version: Annotated[
        int | None, Query(ge=1, description="The version that the change was made from; none: whatever is there")
    ] = None,
) -> RuleItem:
    """Change a rule. What it fires is resolved where it judges otherwise now, and judged anew from the next step on."""
    if body.id != rule:
        raise InvalidRequest(f"the body is of rule {body.id!r}, the address of {rule!r}; an id stays as it is")
    _existing(services, rule)
    (row,) = _keep(services, [body], expected_version=version)
    return _items(services, [row])[0]


@router.delete("/{rule}", status_code=204, responses=NOT_FOUND)
def delete_rule(rule: RuleId, services: ServicesNow) -> None:
    """Delete a rule: what it fires is resolved, what it found stays in the history."""
    _existing(services, rule)
    services.store.alerts.delete_rule(rule, now_us=wall_clock_us())
    services.alerts.rules_changed()


def _existing(services: Services, rule: str) -> RuleRow:
    row = services.store.alerts.rule(rule)
    if row is None:
        raise NotFound(f"there is no rule {rule!r} (now); GET /api/v1/rules lists those there are")
    return row


def _sound(rule: Rule) -> Rule:
    try:
        return parse(rule)
    except InvalidRule as error:
        raise InvalidRequest(str(error)) from None


def _problems_among(services: Services, rules: Sequence[Rule], *, is_list: bool = False) -> list[Problem]:
    """What is wrong with sound rules beside the others; `is_list`: said by the rule's id, as of one among many."""
    kept = {row.rule_id: rule for row in services.store.alerts.rules() if (rule := _readable(row))}
    others = kept | {rule.id: rule for rule in rules}
    channels = {row.channel_id: row.name for row in services.store.alerts.channels()}
    return [
        Problem(where=f"rules[{rule.id}].{problem.where}" if is_list else problem.where, text=problem.text)
        for rule in rules
        for problem in check_among(rule, others, channels)
    ]


def _keep(services: Services, rules: Sequence[Rule], *, expected_version: int | None = None) -> list[RuleRow]:
    """Keep rules, all of them sound; `expected_version` as the store has it."""
    store, now_us = services.store.alerts, wall_clock_us()
    bodies = [(rule.id, _sound(rule).model_dump(mode="json")) for rule in rules]
    if problems := _problems_among(services, rules):
        raise InvalidRequest(str(InvalidRule(problems)))
    known = {row.rule_id for row in store.rules()}
    if len(known | {rule_id for rule_id, _ in bodies}) > MAX_RULES:
        raise InvalidRequest(f"{MAX_RULES:,} rules are the most that are kept; delete some that are not needed")
    if expected_version == 0 and (double := known & {rule_id for rule_id, _ in bodies}):
        raise Conflict(f"there is a rule {min(double)!r} already; choose another id, or change that one")
    kept = [
        store.put_rule(rule_id, body, now_us=now_us, expected_version=expected_version, told_only=TOLD_ONLY)
        for rule_id, body in bodies
    ]
    services.alerts.rules_changed()
    return kept


def _taken(services: Services) -> set[str]:
    """Presets of which a rule was made."""
    return {str(row.body.get("preset")) for row in services.store.alerts.rules()}


def _free(rule_id: str, ids: set[str]) -> str:
    """The id, or one like it that no rule has."""
    at, found = 1, rule_id
    while found in ids:
        at += 1
        found = f"{rule_id[:58]}-{at}"
    return found


def _readable(row: RuleRow) -> Rule | None:
    """None: made by another version, which this one cannot read."""
    try:
        return parse(row.body)
    except InvalidRule:
        return None


def _items(services: Services, rows: Iterable[RuleRow]) -> list[RuleItem]:
    status = services.store.alerts.rule_status()
    found = []
    for row in rows:
        rule, of_it = _readable(row), status.get(row.rule_id)
        problems = check(row.body) if rule is None else []
        error = "; ".join(f"{problem.where} {problem.text}" for problem in problems)
        if not error and of_it is not None and of_it.errors:
            error = "it cannot be evaluated on some run; the history says why"
        found.append(
            RuleItem(
                rule=rule or _stand_in(row),
                version=row.version,
                sentence=sentence(rule) if rule else "",
                firing=of_it.firing if of_it else 0,
                pending=of_it.pending if of_it else 0,
                last_fired_us=of_it.last_fired_us if of_it else None,
                error=error,
            )
        )
    return sorted(found, key=lambda item: (item.rule.name.casefold(), item.rule.id))


def _stand_in(row: RuleRow) -> Rule:
    """Something to show of a rule that cannot be read: it can be switched off, changed or deleted."""
    name = str(row.body.get("name") or row.rule_id)[:200]
    metric = str(row.body.get("metric") or "unknown")[:200]
    return Rule(id=row.rule_id, name=name, metric=metric, threshold=0, enabled=False)
