"""What accelerate and schedulers put into the environment: accepted as it is done, or refused in one line."""

import os

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState

from ssl_hub.errors import UsageError
from ssl_hub.train import launch
from ssl_hub.train.launch_check import check_compilation, check_environment


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """accelerate's state as in a process of its own, before and after."""
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "SLURM_", "OMPI_", "PMI_"))]:
        monkeypatch.delenv(name)
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ACCELERATE_USE_FSDP", "true", "ACCELERATE_USE_FSDP=true: this package trains with plain data parallelism"),
        ("ACCELERATE_USE_DEEPSPEED", "true", "ACCELERATE_USE_DEEPSPEED=true"),
        ("ACCELERATE_USE_MEGATRON_LM", "true", "ACCELERATE_USE_MEGATRON_LM=true"),
        ("ACCELERATE_USE_PARALLELISM_CONFIG", "true", "ACCELERATE_USE_PARALLELISM_CONFIG=true"),
        ("ACCELERATE_USE_SAGEMAKER", "true", "ACCELERATE_USE_SAGEMAKER=true"),
        ("ACCELERATE_USE_WHAT_COMES_NEXT", "1", "ACCELERATE_USE_WHAT_COMES_NEXT=1"),
        ("ACCELERATE_MIXED_PRECISION", "fp8", "mixed precision is 'fp8', expected one of no, bf16, fp16"),
        ("ACCELERATE_MIXED_PRECISION", "fp16", "fp16 needs an accelerator, and the device is cpu; use bf16 or no"),
        ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4", "accumulate gradients over 4 steps; .* train.accumulation=4"),
        ("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR", "told to compile .dynamo backend INDUCTOR.; .* runtime.compile=true"),
        ("SLURM_NTASKS", "8", "SLURM_NTASKS=8 and no WORLD_SIZE: each of these tasks would train a model of its own"),
        ("OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_SIZE=2 and no WORLD_SIZE"),
        ("PMI_SIZE", "2", "PMI_SIZE=2 and no WORLD_SIZE"),
    ],
)  # fmt: skip
def test_what_is_not_done_is_refused(monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=said) as refused:
        launch.open_accelerator()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACCELERATE_USE_CPU", "true"),
        ("ACCELERATE_USE_FSDP", "false"),
        ("ACCELERATE_MIXED_PRECISION", "no"),
        ("ACCELERATE_MIXED_PRECISION", "bf16"),
        ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "1"),
        ("ACCELERATE_DYNAMO_BACKEND", "NO"),
        ("ACCELERATE_DEBUG_MODE", "true"),
        ("SLURM_NTASKS", "1"),
    ],
)
def test_what_is_done_is_accepted(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    accelerator = launch.open_accelerator()
    assert accelerator.gradient_accumulation_steps == 1
    assert accelerator.mixed_precision == (value if name.endswith("PRECISION") else "no")


def test_a_step_of_one_task_is_one_process_of_a_larger_job():
    assert check_environment({"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1"}) == 1
    with pytest.raises(UsageError, match="SLURM_STEP_NUM_TASKS=2"):
        check_environment({"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "2"})
    with pytest.raises(UsageError, match="OMPI_COMM_WORLD_SIZE=4"):
        check_environment({"SLURM_NTASKS": "1", "OMPI_COMM_WORLD_SIZE": "4"})
    joined = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "node", "MASTER_PORT": "1"}
    assert check_environment({"SLURM_NTASKS": "8", **joined}) == 8
    with pytest.raises(UsageError, match="ACCELERATE_TORCH_DEVICE=cuda:0, which all 8 processes would share"):
        check_environment({"ACCELERATE_TORCH_DEVICE": "cuda:0", **joined})


def test_accumulation_of_another_accelerator_in_this_process_does_not_reach_ours(monkeypatch):
    from accelerate import Accelerator

    Accelerator(cpu=True, gradient_accumulation_steps=4)
    ours = launch.open_accelerator()
    weight = torch.ones(2, requires_grad=True)
    ours.backward(weight.sum())
    assert weight.grad.tolist() == [1.0, 1.0]


def test_what_accelerate_refuses_itself_is_one_line(monkeypatch):
    def refuse(*_arguments, **_options):
        raise ValueError("bf16 mixed precision requires a supported device.\nsecond line")

    monkeypatch.setattr(launch, "Accelerator", refuse)
    with pytest.raises(UsageError, match="accelerate cannot do what it is configured for: bf16 mixed .* device.$"):
        launch.open_accelerator()
    assert PartialState._shared_state == {}


@pytest.mark.parametrize(
    ("variables", "job", "restart"),
    [
        ({}, False, False),
        ({"SLURM_JOB_ID": "17"}, True, False),
        ({"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "1"}, True, True),
        ({"TORCHELASTIC_RESTART_COUNT": "0"}, False, False),
        ({"TORCHELASTIC_RESTART_COUNT": "2"}, False, True),
        ({"SLURM_RESTART_COUNT": ""}, False, False),
    ],
)
def test_a_job_that_is_started_again_is_known(monkeypatch, variables, job, restart):
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (launch.job_id(None) is not None) == job
    assert launch.is_restart() == restart
    launcher = launch.Launcher(["torchrun"], {}, "7@1.5")
    other = launcher._replace(process="8@1.5")
    assert (launch.job_id(launcher) == launch.job_id(other)) == ("SLURM_JOB_ID" in variables)  # Slurm starts both


@pytest.mark.parametrize(
    ("name", "value"),
    [("TORCHDYNAMO_DISABLE", "1"), ("TORCH_COMPILE_DISABLE", "1"), ("TORCHDYNAMO_SUPPRESS_ERRORS", "0")],
)
def test_what_would_be_recorded_as_compiled_and_is_not(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"^the environment has {name}={value}, by which torch does not compile"):
        check_compilation({name: value})
    check_compilation({"TORCHDYNAMO_DISABLE": "0", "TORCHDYNAMO_SUPPRESS_ERRORS": ""})
