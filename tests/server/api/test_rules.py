"""Rules over the API: kept, checked, tried, made of presets, and as YAML."""

from __future__ import annotations

from typing import Any

import pytest
from halfscope_server.alerts.validation import check
from halfscope_server.api import alert_models
from starlette.testclient import TestClient

RULE = {"id": "loss-high", "name": "Loss is high", "metric": "loss", "threshold": 1.5}


def names(client: TestClient) -> list[str]:
    return [item["rule"]["id"] for item in client.get("/api/v1/rules").json()["rules"]]


def test_a_rule_is_made_changed_and_deleted(client: TestClient) -> None:
    """Its version counts changes; a change made from an older version is refused, as is an id that is taken."""
    made = client.post("/api/v1/rules", json=RULE)
    assert (made.status_code, made.json()["version"]) == (201, 1)
    assert made.json()["sentence"] == "loss, above 1.5"
    assert client.post("/api/v1/rules", json=RULE).status_code == 409
    changed = client.put("/api/v1/rules/loss-high?version=1", json={**RULE, "threshold": 2, "enabled": False})
    assert (changed.json()["version"], changed.json()["rule"]["enabled"]) == (2, False)
    stale = client.put("/api/v1/rules/loss-high?version=1", json=RULE)
    assert (stale.status_code, stale.json()["code"]) == (409, "conflict")
    assert client.put("/api/v1/rules/other", json=RULE).status_code == 422
    assert client.put("/api/v1/rules/nobody", json={**RULE, "id": "nobody"}).status_code == 404
    assert client.delete("/api/v1/rules/loss-high").status_code == 204
    assert client.delete("/api/v1/rules/loss-high").status_code == 404
    assert names(client) == []


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"threshold": "much"}, "threshold"),
        ({"aggregation": "quantile", "argument": 7}, "argument"),
        ({"clear": 9}, "clear"),
        ({"scope": {"layers": ["fc*"]}}, "scope.layers"),
        ({"window": {"steps": 5, "seconds": 5}}, "window"),
        ({"message": "{nothing}"}, "message"),
    ],
)
def test_what_is_wrong_is_said_by_field_and_never_kept(client: TestClient, changes: dict[str, Any], where: str) -> None:
    """The check names the field; making, trying and importing refuse the same rule."""
    rule = {**RULE, **changes}
    found = client.post("/api/v1/rules/check", json=rule).json()
    alert_models.RuleCheck.model_validate(found)
    assert (found["sentence"], [problem["where"] for problem in found["problems"]]) == ("", [where])
    assert client.post("/api/v1/rules", json=rule).status_code == 422
    assert client.post("/api/v1/rules/backtest", json={"rule": rule}).status_code == 422
    assert names(client) == []


def test_rules_that_would_inhibit_each_other_in_a_circle_are_refused(client: TestClient) -> None:
    """Saved one by one or together, and the text names the way round."""
    assert client.post("/api/v1/rules", json={**RULE, "id": "a", "inhibited_by": ["b"]}).status_code == 201
    assert client.post("/api/v1/rules", json={**RULE, "id": "b", "inhibited_by": ["c"]}).status_code == 201
    closing = {**RULE, "id": "c", "inhibited_by": ["other", "a"]}
    refused = client.post("/api/v1/rules", json=closing)
    assert (refused.status_code, "'c' -> 'a' -> 'b' -> 'c'" in refused.text) == (422, True)
    (problem,) = client.post("/api/v1/rules/check", json=closing).json()["problems"]
    assert problem["where"] == "inhibited_by"
    text = "rules:\n" + "".join(
        f"- {{id: {name}, name: N, metric: loss, threshold: 1, inhibited_by: [{by}]}}\n" for name, by in ("xy", "yx")
    )
    found = client.post("/api/v1/rules/yaml", json={"text": text}).json()
    assert [problem["where"] for problem in found["problems"]] == ["rules[x].inhibited_by", "rules[y].inhibited_by"]
    assert (found["created"], names(client)) == ([], ["a", "b"])
    assert client.post("/api/v1/rules", json={**closing, "inhibited_by": ["other"]}).status_code == 201


def test_a_rule_names_channels_that_are_there(client: TestClient) -> None:
    """Checking, saving and importing refuse one that is not, and tell which there are."""
    rule = {**RULE, "channels": ["ops"]}
    refused = client.post("/api/v1/rules", json=rule)
    assert (refused.status_code, "there are none yet" in refused.text) == (422, True)
    address = {"kind": "webhook", "name": "Night watch", "secrets": {"url": "https://example.org/"}}
    made = client.post("/api/v1/channels", json=address).json()
    (problem,) = client.post("/api/v1/rules/check", json=rule).json()["problems"]
    assert problem == {
        "where": "channels", "text": f"'ops' is no channel; expected ids of '{made['id']}' (Night watch)"
    }  # fmt: skip
    text = "rules: [{id: loss-high, name: Loss, metric: loss, threshold: 1, channels: [ops]}]"
    found = client.post("/api/v1/rules/yaml", json={"text": text}).json()
    assert ([problem["where"] for problem in found["problems"]], names(client)) == (["rules[loss-high].channels"], [])
    assert client.post("/api/v1/rules", json={**rule, "channels": [made["id"]]}).status_code == 201


def test_a_sound_rule_reads_as_a_sentence(client: TestClient) -> None:
    """What the editor offers as its name."""
    body = {**RULE, "aggregation": "mean", "window": {"steps": 20}}
    assert client.post("/api/v1/rules/check", json=body).json() == {
        "sentence": "loss, mean over 20 steps, above 1.5",
        "problems": [],
    }


def test_back_test_says_when_a_rule_would_have_fired(client: TestClient, run_id: str) -> None:
    """The sample's loss is 2 / (1 + step): above 0.15 up to step 12, and the NaN later is no crossing."""
    rule = {**RULE, "threshold": 0.15}
    found = client.post("/api/v1/rules/backtest", json={"rule": rule, "width_px": 200}).json()
    alert_models.Backtest.model_validate(found)
    assert found["summary"] == "would have fired 1 time in 1 run"
    (run,) = found["runs"]
    (one,) = run["episodes"]
    assert (run["run"], one["first_step"], one["fired_step"], one["resolved_step"]) == (run_id, 0, 0, 13)
    other = client.post("/api/v1/rules/backtest", json={"rule": {**rule, "metric": "nothing"}, "runs": [run_id]})
    assert other.json()["runs"][0]["note"] == 'this run has no series "nothing"'
    assert names(client) == []


def test_presets_are_taken_over_one_by_one_or_all_that_are_recommended(client: TestClient) -> None:
    """One that was taken stays as somebody changed it; an id that is in use gets a number."""
    offered = client.get("/api/v1/rules/presets").json()["presets"]
    recommended = {p["rule"]["id"] for p in offered if p["rule"]["severity"] != "info"}
    assert all(preset["rule"]["reason"] and not preset["taken"] for preset in offered)
    client.post("/api/v1/rules", json={**RULE, "id": "stall"})
    (made,) = client.post("/api/v1/rules/presets", json={"ids": ["nonfinite-applied"]}).json()["rules"]
    changed = {**made["rule"], "name": "Ours"}
    client.put("/api/v1/rules/nonfinite-applied", json=changed)
    client.post("/api/v1/rules/presets", json={})
    rules = {item["rule"]["id"]: item["rule"] for item in client.get("/api/v1/rules").json()["rules"]}
    assert rules["nonfinite-applied"]["name"] == "Ours"
    assert (rules["stall"]["name"], rules["stall-2"]["preset"]) == ("Loss is high", "stall")
    assert {rule["preset"] for rule in rules.values()} - {""} == recommended
    taken = {p["rule"]["id"] for p in client.get("/api/v1/rules/presets").json()["presets"] if p["taken"]}
    assert taken == recommended
    assert client.post("/api/v1/rules/presets", json={}).json()["rules"] == []
    assert client.post("/api/v1/rules/presets", json={"ids": ["nothing"]}).status_code == 404


def test_yaml_goes_out_and_comes_back(client: TestClient) -> None:
    """A dry run does nothing; rules that a text does not name stay; with a problem nothing is done."""
    client.post("/api/v1/rules/presets", json={})
    text = client.get("/api/v1/rules/yaml").json()["text"]
    before = client.get("/api/v1/rules").json()

    def put(changed: str, *, dry: bool = False) -> dict[str, Any]:
        result = client.post(f"/api/v1/rules/yaml?dry_run={str(dry).lower()}", json={"text": changed}).json()
        alert_models.ImportResult.model_validate(result)
        return dict(result)

    assert put(text)["unchanged"] == sorted(names(client))
    added = "rules:\n- {id: loss-high, name: Loss is high, metric: loss, threshold: 1.5}\n"
    assert put(added, dry=True)["created"] == ["loss-high"]
    assert client.get("/api/v1/rules").json() == before
    broken = put(added + "- {id: worse, name: Worse, metric: loss}\n")
    assert broken["problems"] == [{"where": "rules[1].threshold", "text": "is missing (line 3)"}]
    assert client.get("/api/v1/rules").json() == before
    assert put(added)["created"] == ["loss-high"]
    assert put(added.replace("1.5", "2.5"))["changed"] == ["loss-high"]
    assert len(names(client)) == len(before["rules"]) + 1


def test_vocabulary_offers_what_makes_sound_rules(client: TestClient, run_id: str) -> None:
    """Each metric with each of its aggregations, by what answers the API's check; the series of the runs are among
    them."""
    words = client.get("/api/v1/rules/vocabulary").json()
    alert_models.RuleVocabulary.model_validate(words)
    assert {"nonfinite_rate", "underflow_share", "loss", "amp.scale"} <= {metric["id"] for metric in words["metrics"]}
    arguments = {item["id"]: item["default_argument"] for item in words["aggregations"]}
    for metric in words["metrics"]:
        for aggregation in metric["aggregations"]:
            rule = {**RULE, "metric": metric["id"], "aggregation": aggregation, "argument": arguments[aggregation]}
            assert check({**rule, "window": {"steps": 10}}) == [], rule
    assert client.post("/api/v1/rules/check", json={**rule, "window": {"steps": 10}}).json()["problems"] == []
