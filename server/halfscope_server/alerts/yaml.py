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
    except (ValueError, LookupError, AttributeError, TypeError) as error:  # of values that their tag does not fit
        return _wrong(f"holds a value that cannot be read: {error}")
    if unknown := [key for key in content if key != "rules"] if isinstance(content, Mapping) else []:
        line = next(key.start_mark.line + 1 for key, _ in node.value if key.value != "rules")
        return _wrong(f"{_seen(unknown[0])} is not known here; expected `rules:` alone (line {line})")
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
    """Plain values only, each key once, and no anchors: a few of them can stand for gigabytes."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        mark = self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            raise _refused("aliases are not taken", mark)
        if self._depth > MAX_DEPTH:  # before what lies deeper was read
            raise _refused(f"is nested too deeply; expected at most {MAX_DEPTH} levels", mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise _refused(f"{_seen(key.value)} stands there twice; leave one of them out", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> Any:
        """Not to the base of 60, which nobody means: `1:30` would be 90."""
        if ":" in node.value:
            text = f"{_seen(node.value)} is no number; expected one without colons, or quotes around it"
            raise _refused(text, node.start_mark)
        is_int = node.tag == "tag:yaml.org,2002:int"
        return self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_number)


def _refused(text: str, mark: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, text, mark)


def _seen(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


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
