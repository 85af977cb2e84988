"""What devices can do is asked for, and what one lacks is done on the CPU. None but the CPU is here."""

from types import SimpleNamespace

import pytest
import torch

from ssl_hub.model import devices
from ssl_hub.model.foreach import Kept, copy_tensors
from ssl_hub.model.spectrum import eigh, eigvalsh


@pytest.mark.parametrize(
    ("name", "queued", "pins", "synchronises"),
    [
        ("cpu", False, False, False),
        ("cuda", True, True, True),
        ("xpu", True, True, True),
        ("mps", True, False, False),
        (torch._C._get_privateuse1_backend_name(), True, True, True),  # an NPU's, by its extension
    ],
)
def test_gates_are_what_is_needed(name, queued, pins, synchronises):
    device = torch.device(name)
    assert devices.is_queued(device) == queued
    assert devices.can_pin(device) == pins
    assert devices.can_synchronise_bn(device) == synchronises
    assert devices.can_fuse(device)


def test_a_device_keeps_its_own_random_state_and_the_cpu_has_none_beside_torchs(monkeypatch):
    assert devices.generator_state(torch.device("cpu")) is None
    kept = {}
    module = SimpleNamespace(
        get_rng_state=lambda device: torch.tensor([7]), set_rng_state=lambda state, device: kept.update({device: state})
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    device = torch.device("xpu")
    devices.set_generator_state(device, devices.generator_state(device))
    assert kept[device].tolist() == [7]


def test_a_device_without_decompositions_leaves_them_to_the_cpu(monkeypatch):
    matrix = torch.randn(6, 6)
    matrix = matrix + matrix.mT
    exact, calls = torch.linalg.eigh(matrix), []

    def first_fails(real):
        def call(given):
            calls.append(given)
            if len(calls) % 2:
                raise NotImplementedError("not implemented for this device")
            return real(given)

        return call

    monkeypatch.setattr(torch.linalg, "eigh", first_fails(torch.linalg.eigh))
    monkeypatch.setattr(torch.linalg, "eigvalsh", first_fails(torch.linalg.eigvalsh))
    s, u = eigh(matrix)
    assert torch.equal(s, exact[0]) and torch.equal(u, exact[1])
    torch.testing.assert_close(eigvalsh(matrix), exact[0])
    assert len(calls) == 4


def mixed() -> list[torch.Tensor]:
    return [torch.randn(3), torch.tensor(4), torch.randn(2, 2).double(), torch.randn(1), torch.tensor([True, False])]


def test_tensors_of_several_types_are_copied_one_type_at_a_time(monkeypatch):
    calls, real = [], torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, tensors: calls.append(tensors) or real(to, tensors))
    tensors, copies = mixed(), mixed()
    copy_tensors(tensors, to=copies)
    assert all(torch.equal(one, two) for one, two in zip(tensors, copies, strict=True))
    assert [{t.dtype for t in call} for call in calls] == [{t.dtype} for t in (tensors[0], *tensors[1:3], tensors[4])]
    copy_tensors([], to=[])


def test_kept_tensors_are_given_back_unless_told_otherwise():
    tensors = mixed()
    before, kept = [tensor.clone() for tensor in tensors], Kept(tensors)
    kept.keep()
    for tensor in tensors[:4]:
        tensor.add_(1)
    tensors[0][1] = float("nan")
    kept.give_back(unless=torch.tensor(True))
    assert tensors[0].isnan().any() and tensors[1] == 5
    kept.give_back(unless=torch.tensor(False))
    assert all(torch.equal(one, two) for one, two in zip(tensors, before, strict=True))
