"""Layers through the API: the tree, the lower lane, and the window's fields that choose a layer and step."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope.sketch import of_array, pack, stack
from halfscope.wire.messages import Facts, Layer, Layers, Record
from halfscope_server.api import live_models, models
from halfscope_server.api.services import Services
from pydantic import TypeAdapter
from starlette.testclient import TestClient, WebSocketTestSession

LIVE = "ws://127.0.0.1:65504/api/v1/live"
RUN = "01hwtestlayers00"
NAMES = ["embed.weight", "block.0.fc.weight", "block.0.<b>.weight", "head.weight"]
EVERY = 10

_server_message: TypeAdapter[Any] = TypeAdapter(live_models.ServerMessage)


def layered_records(base: list[Record], steps: range) -> list[Record]:
    """A run's records with sketches in front of its end."""
    rng = np.random.default_rng(0)
    records: list[Record] = [Layers([Layer(k, name, [100], "float32") for k, name in enumerate(NAMES)])]
    records.append(Facts(0, {"precision": "FP32", "sketches": {"every": EVERY}}))
    for step in steps:
        values = [np.exp2(rng.normal(-10 - 12 * k, 2, 100)) for k in range(len(NAMES))]
        stacked = stack([of_array(v) for v in values])
        time_us = 1_767_323_045_000_000 + step * 100_000
        records += pack(
            stacked, np.arange(len(NAMES)), step=step, time_us=time_us, point="step", clipped="no", scale=np.nan
        )
    return [*base[:-1], *records, base[-1]]


@pytest.fixture
def layered(client: TestClient, send: Callable[..., None], make_records: Callable[..., Any]) -> TestClient:
    """A server with a run of 200 steps whose layers were sketched every 10."""
    send(client, RUN, layered_records(make_records(), range(0, 200, EVERY)))
    return client


def get(client: TestClient, path: str, **params: Any) -> Any:
    """The body of a good answer."""
    response = client.get(f"/api/v1/runs/{RUN}/{path}", params=params)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_tree_is_typed_and_follows_the_window(layered: TestClient) -> None:
    """Nodes in order, the statistic asked for, the steps asked for."""
    tree = get(layered, "layers")
    models.LayerTree.model_validate(tree)
    assert [n["name"] for n in tree["nodes"] if n["kind"] == "parameter"] == NAMES
    assert (tree["stat"], tree["num_frames"], tree["last_step"]) == ("underflow", 20, 199)
    assert (tree["default_layer"], tree["default_gradient"]) == ("head.weight", "true")
    part = get(layered, "layers", stat="norm", first=50, last=80)
    assert (part["stat_title"], part["first_step"], part["last_step"]) == ("Norm", 50, 80)
    assert all(n["worst_step"] in (50, 60, 70, 80) for n in part["nodes"])


def test_the_lower_lane_can_be_asked_for(layered: TestClient) -> None:
    """Beside the upper one, over the same part."""
    lane = get(layered, "strip", lane="underflow", bins=20, first_step=0, last_step=99)
    models.Strip.model_validate(lane)
    assert (lane["lane"], lane["first_step"], lane["last_step"]) == ("underflow", 0, 99)
    assert len(base64.b64decode(lane["cells"])) == 20
    assert lane["ranges"][0]["layer"] == "head.weight"
    assert 0 <= lane["ranges"][0]["step"] <= 99
    assert get(layered, "strip", bins=20)["lane"] == "steps"
    assert layered.get(f"/api/v1/runs/{RUN}/strip", params={"lane": "other"}).status_code == 422


def test_a_run_without_layers_has_an_empty_tree_and_no_lane(client: TestClient, run_id: str) -> None:
    """With the reason, and null."""
    tree = client.get(f"/api/v1/runs/{run_id}/layers").json()
    assert tree["nodes"] == []
    assert tree["empty"]
    assert client.get(f"/api/v1/runs/{run_id}/strip", params={"lane": "underflow"}).json() is None
    summary = client.get(f"/api/v1/runs/{run_id}").json()
    assert summary["underflow"] is None


def test_the_window_chooses_layer_step_and_rows(layered: TestClient) -> None:
    """In the address of a panel, as in that of the tree."""
    fill = get(layered, "panels/histogram", layer="embed.weight", step=47)["fill"]
    assert (fill["first_step"], "embed" in fill["label"]) == (50, True)
    rows = get(layered, "panels/layers-heatmap", rows=["head", "embed"])["fill"]["layout"]["yaxis"]["ticktext"]
    assert rows == ["embed", "head"]
    seen, true = (get(layered, "panels/window", gradient=g)["fill"]["label"] for g in ("seen", "true"))
    assert ("as FP16 sees it" in seen, "true gradient" in true) == (True, True)


@pytest.mark.parametrize(
    "query",
    [
        {"stat": "mean"},
        {"gradient": "half"},
        {"step": -1},
        {"layer": "x" * 513},
        {"rows": ["x"] * 401},
        {"rows": ["x" * 513]},
    ],
)
def test_window_of_layers_that_makes_no_sense_is_refused(layered: TestClient, query: dict[str, Any]) -> None:
    """By name, by the tree and by panels alike."""
    for path in ("layers", "panels/window"):
        response = layered.get(f"/api/v1/runs/{RUN}/{path}", params=query)
        assert response.status_code == 422
        assert next(iter(query)) in response.json()["detail"]


def test_names_of_layers_reach_no_figure_as_markup(layered: TestClient) -> None:
    """They come from someone's code; the tree, which is no figure, has them as they are."""
    for panel in ("layers-heatmap", "underflow-worst", "window", "histogram"):
        figure = get(layered, f"panels/{panel}", layer="block.0.<b>.weight", rows=NAMES)
        assert "<b>" not in json.dumps([figure["skeleton"], figure["fill"]["data"], figure["fill"]["layout"]])
    assert "block.0.<b>.weight" in [n["name"] for n in get(layered, "layers")["nodes"]]


def _next(socket: WebSocketTestSession, kind: str) -> dict[str, Any]:
    """The next message of a kind; every message on the way must be one of the typed API."""
    while True:
        message = json.loads(socket.receive_text())
        _server_message.validate_python(message)
        if message["type"] == kind:
            return dict(message)


def test_live_pages_are_told_of_new_frames(
    client: TestClient, services: Services, send: Callable[..., None], make_records: Callable[..., Any]
) -> None:
    """The lower lane and the number of frames with the run, the charts of the chosen layer with the panels."""
    records = layered_records(make_records(ended=False), range(0, 200, EVERY))
    early = [r for r in records[:-1] if getattr(r, "step", 0) < 100 or not hasattr(r, "lids")]
    window = {"layer": "embed.weight", "step": 150, "stat": "norm", "rows": ["head"], "gradient": "seen"}
    send(client, RUN, early)
    with client.websocket_connect(LIVE) as socket:
        asked = {"type": "watch_run", "run": RUN, "panels": ["histogram", "window"], "window": window, "strip_bins": 20}
        socket.send_json(asked)
        run = _next(socket, "run")
        assert (run["num_frames"], run["underflow"]["lane"]) == (10, "underflow")
        fills = {fill["panel"]: fill for fill in _next(socket, "panels")["fills"]}
        assert fills["histogram"]["first_step"] == 90
        send(client, RUN, [r for r in records if getattr(r, "step", 0) >= 100 and hasattr(r, "lids")])
        while (run := _next(socket, "run"))["num_frames"] == 10:
            pass
        assert run["num_frames"] == 20
        fills = {fill["panel"]: fill for fill in _next(socket, "panels")["fills"]}
        assert fills["histogram"]["first_step"] == 150
