"""The report as others read it: what `report.json` holds is what its schema says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import orjson
import pytest
from halfscope_server import openapi
from halfscope_server.compare.comparison import Comparisons
from halfscope_server.compare.types import Options
from halfscope_server.query import Views
from halfscope_server.store.store import Store

SCHEMA = Path(__file__).parents[3] / "docs" / "compare.schema.json"


@pytest.fixture
def schema() -> Any:
    """As it is documented."""
    return json.loads(SCHEMA.read_bytes())


def _write(
    write_run: Callable[..., Any], run_id: str, *, num_steps: int, first_bad: int, scale: float, is_live: bool = False
) -> None:
    writer = write_run(run_id, config={"lr": 0.1, "name": run_id})
    writer.facts(precision="FP32" if np.isnan(scale) else "FP16-AMP", seed=0, seed_is_set=True)
    step = np.arange(num_steps)
    writer.points("loss", step, np.where(step < first_bad, 1 + 1 / (1 + step), np.inf))
    writer.points("time.step_s", step, 0.01)
    if not np.isnan(scale):
        writer.points("amp.scale", step, scale, kind="state")
    for at in range(0, num_steps, 25):
        writer.frame(at, {"body.weight": np.ones(50), "head.weight": np.zeros(5)}, scale)
    if not is_live:
        writer.end("finished", num_steps - 1)
    writer.commit()


def test_what_is_exported_fits_the_documented_schema(lite: Store, write_run: Callable[..., Any], schema: Any) -> None:
    """Runs with everything, with an end that is no number, with one step and with none; live ones that are NaN, of very
    different lengths."""
    jsonschema.Draft202012Validator.check_schema(schema)
    _write(write_run, "whole", num_steps=300, first_bad=300, scale=np.nan)
    _write(write_run, "ruined", num_steps=300, first_bad=120, scale=65536.0)
    _write(write_run, "one", num_steps=1, first_bad=1, scale=np.nan)
    _write(write_run, "empty", num_steps=0, first_bad=0, scale=np.nan)
    _write(write_run, "live", num_steps=80, first_bad=0, scale=1.0, is_live=True)
    _write(write_run, "longer", num_steps=2000, first_bad=40, scale=np.nan, is_live=True)
    validator = jsonschema.Draft202012Validator(schema)
    comparisons = Comparisons(Views(lite))
    for runs in (["whole", "ruined", "one", "empty"], ["live", "longer", "whole"], ["empty", "one"]):
        for align in ("attempts", "time"):
            report = comparisons.get(runs, Options(align=align)).report
            exported = json.loads(orjson.dumps(report))
            validator.validate(exported)
            assert exported["version"] == 1
            assert exported["is_live"] == ("live" in runs)
            assert set(exported) == set(schema["properties"])
    for wrong in ({"outcome": "fine"}, {"members": None}, {"quality": [{}]}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate({**exported, **wrong})


def test_the_documented_schema_is_the_codes(schema: Any) -> None:
    """Mend with: python -m halfscope_server.openapi. What fields mean is in it."""
    assert schema == openapi.report_schema()
    assert "bits (log2)" in schema["$defs"]["LayerDivergence"]["properties"]["distance_bits"]["description"]
