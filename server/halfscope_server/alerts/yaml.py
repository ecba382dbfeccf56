"""Rules as YAML, for files that are kept beside the code.

Owns the text form: a list under `rules`, without what is as usual. Must not touch the store. Invariant: what was
written out reads back as the same rules; a text with any problem gives no rules at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.validation import InvalidRule, Problem, parse

MAX_RULES = 2000
MAX_CHARS = 1_000_000
MAX_DEPTH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a text holds."""

    rules: Sequence[Rule] = ()
    """Empty where there is any problem."""
    problems: Sequence[Problem] = field(default=())


def to_yaml(rules: Iterable[Rule]) -> str:
    """Rules as text, in the order of their ids; what is as usual is left out."""
    items = [_plain(rule) for rule in sorted(rules, key=lambda rule: rule.id)]
    text: str = yaml.safe_dump({"rules": items}, sort_keys=False, allow_unicode=True, width=100)
    return text


def from_yaml(text: str) -> Imported:
    """Rules of a text, or what is wrong with it: `rules[2].threshold` and the line it stands in."""
    if len(text) > MAX_CHARS:
        return _wrong(f"has {len(text):,} characters; expected at most {MAX_CHARS:,}")
    try:
        node = yaml.compose(text, Loader=_Loader)
        content = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        return _wrong(_of_yaml(error))
    except RecursionError:
        return _wrong("is nested too deeply")
    items = content.get("rules") if isinstance(content, Mapping) else content
    if not isinstance(items, list):
        return _wrong("expected a list under `rules:`")
    if len(items) > MAX_RULES:
        return _wrong(f"has {len(items):,} rules; expected at most {MAX_RULES:,}")
    lines = _lines(node)
    rules: list[Rule] = []
    problems: list[Problem] = []
    seen: set[str] = set()
    for at, item in enumerate(items):
        line = f" (line {lines[at]})" if at < len(lines) else ""
        if not isinstance(item, Mapping):
            problems.append(Problem(where=f"rules[{at}]", text=f"is no rule; expected fields such as id: ...{line}"))
            continue
        try:
            rule = parse(item)
        except InvalidRule as error:
            problems += [Problem(where=f"rules[{at}].{p.where}", text=f"{p.text}{line}") for p in error.problems]
            continue
        if rule.id in seen:
            problems.append(Problem(where=f"rules[{at}].id", text=f"{rule.id!r} stands there twice{line}"))
        seen.add(rule.id)
        rules.append(rule)
    return Imported(problems=problems) if problems else Imported(rules=rules)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML ships no types
    """Plain values only, and no anchors: a few of them can stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.constructor.ConstructorError(None, None, "aliases are not taken", self.peek_event().start_mark)
        return super().compose_node(parent, index)


def _plain(rule: Rule) -> dict[str, Any]:
    return rule.model_dump(mode="json", exclude_defaults=True)


def _wrong(text: str) -> Imported:
    return Imported(problems=(Problem(where="text", text=text),))


def _of_yaml(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    told = getattr(error, "problem", None) or "is no YAML"
    return f"{told} (line {mark.line + 1})" if mark is not None else str(told)


def _lines(node: Any) -> list[int]:
    """The line each rule begins in."""
    if isinstance(node, yaml.MappingNode):
        node = next((value for key, value in node.value if key.value == "rules"), None)
    return [item.start_mark.line + 1 for item in node.value] if isinstance(node, yaml.SequenceNode) else []
