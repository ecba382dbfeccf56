"""Writes the OpenAPI document from which the web client's types are generated, and the schema of exported comparisons.

Run `python -m halfscope_server.openapi web/openapi.json docs/compare.schema.json`. Needs no database. Invariant: the
document holds every body of the REST routes and every live message, and two runs over the same code write the same
bytes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Literal, get_args

import orjson
from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from halfscope_server.api import live_models, routers
from halfscope_server.compare.types import Report

_SAID: Literal["serialization"] = "serialization"
_ASKED: Literal["validation"] = "validation"
_TEMPLATE = "#/components/schemas/{model}"


def document(app: FastAPI | None = None) -> dict[str, Any]:
    """The OpenAPI document of an app, or of the bare routes; live messages included as ClientMessage and
    ServerMessage."""
    source = routers.describe() if app is None else app
    found = FastAPI.openapi(source)
    schemas: dict[str, Any] = found.setdefault("components", {}).setdefault("schemas", {})
    # Requests and answers of the websocket: what the server says is serialized, what the client says is validated.
    for name, mode, members in (
        ("ServerMessage", _SAID, live_models.SERVER_MESSAGES),
        ("ClientMessage", _ASKED, live_models.CLIENT_MESSAGES),
    ):
        _, definitions = models_json_schema([(member, mode) for member in members], ref_template=_TEMPLATE)
        for key, schema in definitions.get("$defs", {}).items():
            schemas.setdefault(key, schema)
        mapping = {get_args(member.model_fields["type"].annotation)[0]: member.__name__ for member in members}
        schemas[name] = {
            "title": name,
            "oneOf": [{"$ref": _TEMPLATE.format(model=member)} for member in mapping.values()],
            "discriminator": {
                "propertyName": "type",
                "mapping": {kind: _TEMPLATE.format(model=member) for kind, member in mapping.items()},
            },
        }
    found["components"]["schemas"] = dict(sorted(schemas.items()))
    return found


def report_schema() -> dict[str, Any]:
    """What `report.json` holds, as a JSON schema that needs no other file."""
    schemas = document()["components"]["schemas"]
    found: dict[str, Any] = {}
    waiting = [Report.__name__]
    while waiting:
        name = waiting.pop()
        if name not in found:
            text = orjson.dumps(schemas[name]).decode()
            waiting += re.findall(re.escape(_TEMPLATE.format(model="")) + r"(\w+)", text)
            found[name] = orjson.loads(text.replace(_TEMPLATE.format(model=""), "#/$defs/"))
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **found.pop(Report.__name__)}
    return {**whole, "title": "Comparison of runs", "$defs": dict(sorted(found.items()))}


def write(path: Path, content: dict[str, Any] | None = None) -> bool:
    """Writes the OpenAPI document, or what else is given; False when it already stood there as it is."""
    data = orjson.dumps(document() if content is None else content, option=orjson.OPT_INDENT_2) + b"\n"
    if path.is_file() and path.read_bytes() == data:
        return False
    path.write_bytes(data)
    return True


if __name__ == "__main__":
    targets = [Path(name) for name in sys.argv[1:]] or [Path("web/openapi.json"), Path("docs/compare.schema.json")]
    for target, content in zip(targets, (document, report_schema), strict=False):
        print(f"{target}: {'written' if write(target, content()) else 'unchanged'}")
