"""JAX pytrees by Orbax under Hanse. Several processes need `checkpoint.layout: shared`, because they write one folder together:

    hanse.orbax.initialize()                      # before anything of JAX, and before the Saver; one process needs it not
    saver = hanse.Saver(agree=hanse.orbax.agree)

jax and orbax are imported when a function is called."""
from __future__ import annotations

import os
from typing import Any, Optional

from .environment import ContractError, Run
from .environment import run as read_environment
from .saver import Saver

FOLDER = "tree"


def _jax() -> Any:
    try:
        import jax
    except ImportError as e:
        raise ContractError(f"jax cannot be imported ({e}): install jax where this program runs") from e
    return jax


def initialize(run: Optional[Run] = None) -> None:
    """jax.distributed.initialize with what Hanse tells: JAX reads the coordinator's address from the environment, and neither
    the number of processes nor its own. JAX's own notice of SIGTERM is switched off, as it would take the signal from the Saver."""
    run = read_environment() if run is None else run
    if run.world_size == 1:
        return
    jax = _jax()
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    if not address:
        raise ContractError("JAX_COORDINATOR_ADDRESS is not set: a gang under Hanse's agent has it; elsewhere set it to HOST:PORT of rank 0")
    try:
        jax.config.update("jax_enable_preemption_service", False)
    except AttributeError:  # a version without it
        pass
    jax.distributed.initialize(coordinator_address=address, num_processes=run.world_size, process_id=run.rank)


def agree(number: int) -> int:
    """The largest number of all processes, for Saver(agree=...); alone, the number itself."""
    jax = _jax()
    if jax.process_count() == 1:
        return number
    import numpy
    from jax.experimental import multihost_utils

    return int(multihost_utils.process_allgather(numpy.int32(number)).max())


def _checkpointer(saver: Saver) -> Any:
    jax = _jax()
    try:
        import orbax.checkpoint as orbax
    except ImportError as e:
        raise ContractError(f"orbax cannot be imported ({e}): install orbax-checkpoint where this program runs") from e
    if jax.process_count() > 1 and saver.active and not saver.run.shared:
        raise ContractError(
            f"jax has {jax.process_count()} processes that write one folder together, and a rank of Hanse saves in its own: set "
            "checkpoint.layout: shared in the workload"
        )
    return orbax.StandardCheckpointer()


def save(saver: Saver, step: int, tree: Any) -> None:
    """Orbax's StandardCheckpointer into a folder of its own; returns when it is committed."""
    with saver.step(step) as folder, _checkpointer(saver) as checkpointer:
        checkpointer.save(folder / FOLDER, tree)
        checkpointer.wait_until_finished()


def load(saver: Saver, like: Any = None) -> Any:
    """What save() saved before this run began, in the shapes and on the devices of `like`; None when it starts anew."""
    folder = saver.resume_folder()
    if folder is None:
        return None
    with _checkpointer(saver) as checkpointer:
        return checkpointer.restore(folder / FOLDER, like)
