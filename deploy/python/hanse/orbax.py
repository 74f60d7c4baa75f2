"""JAX pytrees by Orbax under Hanse, in one process. jax and orbax are imported when a function is called."""
from __future__ import annotations

from typing import Any

from .environment import ContractError
from .saver import Saver

FOLDER = "tree"


def _checkpointer() -> Any:
    try:
        import jax
        import orbax.checkpoint as orbax
    except ImportError as e:
        raise ContractError(f"jax and orbax cannot be imported ({e}): install jax and orbax-checkpoint where this program runs") from e
    if jax.process_count() > 1:
        raise ContractError(
            f"jax has {jax.process_count()} processes that write one folder together, and a rank of Hanse saves in its own: run JAX with "
            "one process a workload"
        )
    return orbax.StandardCheckpointer()


def save(saver: Saver, step: int, tree: Any) -> None:
    """Orbax's StandardCheckpointer into a folder of its own; returns when it is committed."""
    with saver.step(step) as folder, _checkpointer() as checkpointer:
        checkpointer.save(folder / FOLDER, tree)
        checkpointer.wait_until_finished()


def load(saver: Saver, like: Any = None) -> Any:
    """What save() saved before this run began, in the shapes and on the devices of `like`; None when it starts anew."""
    folder = saver.resume_folder()
    if folder is None:
        return None
    with _checkpointer() as checkpointer:
        return checkpointer.restore(folder / FOLDER, like)
