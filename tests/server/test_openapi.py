"""The OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from halfscope_server import openapi
from halfscope_server.api import live_models


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """As it is made from the code."""
    return openapi.document()


def test_every_live_message_is_in_it(document: dict[str, Any]) -> None:
    """Websockets have no place in OpenAPI, so both unions stand among the components, told apart by `type`."""
    for name, union in (("ServerMessage", live_models.ServerMessage), ("ClientMessage", live_models.ClientMessage)):
        members = {member.__name__ for member in get_args(get_args(union)[0])}
        schema = document["components"]["schemas"][name]
        assert {item["$ref"].rpartition("/")[2] for item in schema["oneOf"]} == members
        assert len(schema["discriminator"]["mapping"]) == len(members)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    """A dangling one would break the generated client."""
    schemas = document["components"]["schemas"]

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [found for value in node.values() for found in references(value)]
        return [found for value in node for found in references(value)] if isinstance(node, list) else []

    found = references(document)
    assert len(found) > 50
    assert {reference.removeprefix("#/components/schemas/") for reference in found} <= set(schemas)


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    """The generated client calls operations by them."""
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    assert {"list_runs", "get_panel", "sign_in"} <= set(names)


def test_committed_document_is_the_codes(document: dict[str, Any]) -> None:
    """The web client's types come from the file, so it must not lag behind; mend with: python -m
    halfscope_server.openapi"""
    committed = Path(__file__).parents[2] / "web" / "openapi.json"
    assert json.loads(committed.read_bytes()) == document


def test_second_write_changes_nothing(document: dict[str, Any], tmp_path: Path) -> None:
    """The same code gives the same bytes."""
    target = tmp_path / "openapi.json"
    assert openapi.write(target, document)
    assert not openapi.write(target)
