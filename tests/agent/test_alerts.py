"""Which events are alerts in the process, and how callbacks are called."""

from __future__ import annotations

import pickle
from typing import Any

import halfscope
import pytest
from halfscope.alerts import MAX_WAITING, Alert, Alerts, StopTraining

BACKOFF = {"scaler": "GradScaler", "scale": 1.0, "scale_next": 0.5}
STREAK = {"num_skips": 3, "first_step": 7, "optimizer": "SGD"}
APPLIED = {"num_nonfinite": 2, "num_finite": 3}


def heard(*events: tuple[str, int, dict[str, Any]], severity: str = "critical") -> list[Alert]:
    alerts, found = Alerts(), []
    alerts.callbacks.append(found.append)
    for kind, step, attributes in events:
        alerts.hear(kind, step, severity=severity, attributes=attributes, urgent=True)
    alerts.tell()
    return found


@pytest.mark.parametrize(
    ("kind", "attributes", "expected"),
    [
        ("nonfinite_applied", APPLIED, ("nonfinite_applied", "critical")),
        ("bad_streak", STREAK, ("skip_streak", "warning")),
        ("scale_backoff", BACKOFF, ("scale_collapse", "critical")),
        ("scale_backoff", {**BACKOFF, "scale": 2.0, "scale_next": 1.0}, None),
        ("scale_backoff", {**BACKOFF, "scale": 0.5, "scale_next": 0.25}, None),
        ("scale_growth", {**BACKOFF, "scale": 0.25, "scale_next": 0.5}, None),
        ("loss_nonfinite", {"value": "NaN", "caught": False}, ("loss_nonfinite", "critical")),
        ("loss_nonfinite", {"value": "Infinity", "caught": True}, None),
        ("skip", {"class": "settling"}, None),
        ("skip", {"class": "probe"}, None),
        ("input_nonfinite", {}, None),
        ("layer_flushed", {}, None),
    ],
)
def test_which_events_are_alerts(kind: str, attributes: dict[str, Any], expected: tuple[str, str] | None) -> None:
    """Four kinds; what is healthy, caught or a mere notice is none."""
    found = heard((kind, 9, attributes))
    assert [(alert.kind, alert.severity) for alert in found] == ([] if expected is None else [expected])
    assert all(alert.step == 9 and alert.text and alert.details == attributes for alert in found)


def test_what_goes_on_is_told_once() -> None:
    """NaN applied at every step is one alert until there was a step without; optimizers are told apart."""
    steps = [5, 6, 7, 9, 10]
    found = heard(*(("nonfinite_applied", step, APPLIED) for step in steps))
    assert [alert.step for alert in found] == [5, 9]
    two = heard(*(("nonfinite_applied", 5, {**APPLIED, "optimizer": name}) for name in ("D", "G")))
    assert [alert.details["optimizer"] for alert in two] == ["D", "G"]


def test_all_callbacks_are_called_before_the_training_stops() -> None:
    """The first `StopTraining` comes out when everybody was told of everything; then nothing waits."""
    alerts, found = Alerts(), []

    def stop(alert: Alert) -> None:
        raise StopTraining(alert.kind)

    alerts.callbacks += [stop, found.append]
    alerts.hear("bad_streak", 1, attributes=STREAK)
    alerts.hear("scale_backoff", 2, attributes=BACKOFF)
    with pytest.raises(halfscope.StopTraining, match="skip_streak"):
        alerts.tell()
    assert [alert.kind for alert in found] == ["skip_streak", "scale_collapse"]
    alerts.tell()
    assert len(found) == 2


def test_a_callback_that_fails_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Another exception than `StopTraining` is logged and does not reach the training."""
    alerts = Alerts()
    alerts.callbacks.append(lambda alert: 1 / 0)
    alerts.hear("bad_streak", 1, attributes=STREAK)
    alerts.tell()
    assert "a callback of run.on_alert failed (ZeroDivisionError" in caplog.text


def test_what_waits_is_bounded() -> None:
    """A training that never calls `run.step` keeps the newest alerts and no more."""
    found = heard(*(("bad_streak", step, STREAK) for step in range(1000)))
    assert [alert.step for alert in found] == list(range(1000 - MAX_WAITING, 1000))


def test_an_alert_can_leave_the_process() -> None:
    """Alerts and the exception can be pickled: callbacks may send them to another process."""
    (alert,) = heard(("bad_streak", 1, STREAK))
    assert pickle.loads(pickle.dumps(alert)) == alert
    assert str(pickle.loads(pickle.dumps(StopTraining("NaN")))) == "NaN"
