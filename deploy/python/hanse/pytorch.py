"""torch.save and torch.distributed.checkpoint under Hanse. torch is imported when a function is called."""
from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Optional

from . import manifest
from .environment import ContractError
from .saver import Saver


def _torch() -> Any:
    try:
        import torch
    except ImportError as e:
        raise ContractError(f"torch cannot be imported ({e}): install torch where this program runs") from e
    return torch


def agree(number: int) -> int:
    """The largest number of all processes of torch.distributed, for Saver(agree=...); alone, the number itself."""
    torch = _torch()
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return number
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    largest = torch.tensor([number], device=device)
    torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX)
    return int(largest.item())


def save(saver: Saver, step: int, state: Any, name: str = "state.pt") -> None:
    """torch.save into a folder of its own, committed."""
    torch = _torch()
    with saver.step(step) as folder:
        torch.save(state, folder / name)


def load(saver: Saver, name: str = "state.pt", *, map_location: Any = None, weights_only: bool = True) -> Any:
    """What save() saved before this run began; None when it starts anew."""
    folder = saver.resume_folder()
    return None if folder is None else _torch().load(folder / name, map_location=map_location, weights_only=weights_only)


def save_distributed(saver: Saver, step: int, state_dict: Any) -> None:
    """torch.distributed.checkpoint.save. With more than one rank the workload has `checkpoint.layout: shared`, as that writes one
    folder of all; or `checkpoint.reshard: true`: then each rank writes its shards into its own folder, and resumes from all."""
    _torch()
    try:
        from torch.distributed import checkpoint
    except ImportError as e:
        raise ContractError(f"torch.distributed.checkpoint cannot be imported ({e}): install torch 2.3 or newer, built with distributed") from e
    with saver.step(step) as folder:
        checkpoint.save(state_dict, checkpoint_id=folder)
        if not saver.together and not any(folder.iterdir()):  # a rank whose tensors others have written
            (folder / f"rank-{saver.run.rank}").write_bytes(b"")


def load_distributed(saver: Saver, state_dict: Any) -> Optional[int]:
    """Fills `state_dict` in place with what save_distributed() saved, also of another number of ranks; returns its step,
    or None when the program starts anew."""
    folders = saver.run.resume_dirs
    if not folders:
        return None
    _torch()
    from torch.distributed import checkpoint

    if saver.run.shared:
        checkpoint.load(state_dict, checkpoint_id=saver.resume_folder())
        return saver.resume_step
    if len(folders) != saver.run.resume_ranks:
        raise ContractError(
            f"{saver.run.resume_ranks} ranks saved, and this one sees its own files alone: set checkpoint.reshard: true in the workload "
            "(`hanse run --reshard`)"
        )
    steps = {None if m is None else m.step for m in map(manifest.read, folders)}
    step = saver.resume_step
    if steps != {step}:
        raise ContractError(f"the ranks saved at different steps ({steps}): make the Saver with agree=hanse.pytorch.agree, so that they save together")
    merged = Path(tempfile.mkdtemp(prefix="hanse-dcp-"))
    try:
        for folder in folders:
            for file in (folder / f"step-{step}").iterdir():
                os.symlink(file, merged / file.name)
        if not (merged / ".metadata").exists():
            raise ContractError(f"step {step} has no .metadata in {saver.run.resume_dir}: resume with what saved it (save_distributed)")
        checkpoint.load(state_dict, checkpoint_id=merged)
    finally:
        shutil.rmtree(merged)
    return step
