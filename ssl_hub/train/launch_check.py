"""Which launches are accepted: data-parallel training of the recipe, in a precision that the device has.

accelerate takes more from its configuration than a recipe describes: sharded models, other precisions, accumulation and
compilation of its own. What would be recorded and not done, or done and not recorded, is refused before work starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from accelerate import Accelerator

from ssl_hub.errors import UsageError

NUMBERS, ADDRESS = ("RANK", "LOCAL_RANK", "WORLD_SIZE"), ("MASTER_ADDR", "MASTER_PORT")  # variables of torch's launcher
# How many tasks Slurm and MPI say they started, which does not join them. A step of a Slurm job has a count of its own.
TASKS = (("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_SIZE",), ("PMI_SIZE",), ("MV2_COMM_WORLD_SIZE",))
PRECISIONS = ("no", "bf16", "fp16")
OFF = ("", "0", "false", "no", "off", "none")

_NOT_OURS = "this package trains with plain data parallelism (one process a device); choose that in accelerate config"


def check_environment(environment: Mapping[str, str] | None = None) -> int:
    """How many processes were started, by what the environment says.

    Raises UsageError for half of what a launcher sets, for tasks of Slurm or MPI that no launcher of torch's has
    joined, and for what accelerate would be told to do that a recipe does not describe.
    """
    given = os.environ if environment is None else environment
    started = _started(given)
    _check_tasks(given)
    for name, value in sorted(given.items()):
        feature = re.fullmatch(r"ACCELERATE_USE_(?!CPU$)(\w+)", name)
        if feature and value.lower() not in OFF:
            raise UsageError(f"the environment has {name}={value}: {_NOT_OURS}")
    precision = given.get("ACCELERATE_MIXED_PRECISION", "no").lower()
    if precision not in PRECISIONS:
        raise UsageError(f"mixed precision is {precision!r}, expected one of {', '.join(PRECISIONS)}")
    device = given.get("ACCELERATE_TORCH_DEVICE")
    if device and started > 1:
        raise UsageError(
            f"the environment has ACCELERATE_TORCH_DEVICE={device}, which all {started} processes would share; unset it"
        )
    return started


def _started(given: Mapping[str, str]) -> int:
    numbers = {name: given[name] for name in NUMBERS if name in given}
    for name, value in numbers.items():
        if not value.isdecimal():
            raise UsageError(f"the environment has {name}={value!r}, expected a number; unset it, or use a launcher")
    started = int(numbers.get("WORLD_SIZE", 1))
    if "WORLD_SIZE" in numbers and int(numbers.get("RANK", 0)) >= max(started, 1):
        raise UsageError(f"the environment has RANK={numbers['RANK']} and WORLD_SIZE={started}; ranks count from 0")
    missing = [name for name in (*NUMBERS, *ADDRESS) if name not in given]
    if missing and (started != 1 or "LOCAL_RANK" in numbers):
        found = ", ".join(f"{name}={value}" for name, value in numbers.items())
        raise UsageError(
            f"the environment has {found} and no {', '.join(missing)}: start with torchrun or accelerate launch, which"
            f" set all of them, or unset {', '.join(numbers)}"
        )
    return started


def _check_tasks(given: Mapping[str, str]) -> None:
    if "WORLD_SIZE" in given:
        return
    for names in TASKS:
        name = next((name for name in names if given.get(name, "").isdecimal()), None)
        if name is not None and int(tasks := given[name]) > 1:
            raise UsageError(
                f"the environment has {name}={tasks} and no WORLD_SIZE: each of these tasks would train a model of its"
                f" own; start them as recipes/slurm does, or one torchrun a node, or unset {name} to use one process"
            )


def check_compilation(environment: Mapping[str, str] | None = None) -> None:
    """Raise UsageError where torch has been told not to compile, or to go on without where it cannot: a run that is to
    be compiled would say that it was."""
    given = os.environ if environment is None else environment
    off = [name for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE") if given.get(name) == "1"]
    off += [name for name in ("TORCHDYNAMO_SUPPRESS_ERRORS",) if given.get(name)]  # torch takes any text for yes
    if off:
        raise UsageError(
            f"the environment has {off[0]}={given[off[0]]}, by which torch does not compile or leaves out what it"
            " cannot; unset it, or set runtime.compile=false"
        )


def check_accelerator(accelerator: Accelerator, *, started: int) -> None:
    """Raise UsageError where accelerate joined other processes than were started, or does what no recipe says."""
    state, kind = accelerator.state, accelerator.distributed_type.value
    if started != accelerator.num_processes:
        raise UsageError(f"{started} processes were started and accelerate joined {accelerator.num_processes} of them")
    if kind != "NO" and not kind.startswith("MULTI_"):
        raise UsageError(f"accelerate's distributed type is {kind}: {_NOT_OURS}")
    for plugin in ("deepspeed_plugins", "fsdp_plugin", "megatron_lm_plugin", "parallelism_config"):
        if getattr(state, plugin, None) is not None:
            raise UsageError(f"accelerate was given a {plugin}: {_NOT_OURS}")
    backend = state.dynamo_plugin.backend.value
    if backend.lower() not in OFF:
        raise UsageError(
            f"accelerate was told to compile (dynamo backend {backend}); turn that off and set runtime.compile=true"
        )
    steps = os.environ.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "") or str(accelerator.gradient_accumulation_steps)
    if steps != "1":
        raise UsageError(
            f"accelerate was told to accumulate gradients over {steps} steps; set that to 1, and"
            f" train.accumulation={steps} of the recipe instead"
        )
    precision = accelerator.mixed_precision
    if precision not in PRECISIONS:
        raise UsageError(f"mixed precision is {precision!r}, expected one of {', '.join(PRECISIONS)}")
    if precision == "fp16" and accelerator.scaler is None:
        raise UsageError(f"fp16 needs an accelerator, and the device is {accelerator.device.type}; use bf16 or no")
