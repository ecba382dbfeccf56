"""Memory numbers against the system's own."""

from __future__ import annotations

import psutil
import torch
from halfscope.probes import memory


def test_resident_memory_is_the_systems_number() -> None:
    """Within what this process takes meanwhile."""
    found = memory.rss_bytes()
    assert found is not None
    assert abs(found - psutil.Process().memory_info().rss) < 64 * 1024 * 1024


def test_a_host_has_no_device_memory() -> None:
    """None, not zero."""
    assert memory.device_bytes(torch.device("cpu")) is None


def test_shared_tensors_and_nested_state_count_once() -> None:
    """LBFGS keeps lists in its state; a tied weight is one tensor."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    model.register_buffer("running", torch.zeros(3, dtype=torch.float64))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.state[model[0].weight] = {"history": [torch.zeros(2), (torch.zeros(2),)], "count": 3}
    assert memory.training_bytes([model], [optimizer]) == {
        "parameter_bytes": 64,
        "gradient_bytes": 0,
        "buffer_bytes": 24,
        "optimizer_state_bytes": 16,
    }
