"""What Hanse tells a program through its environment, with types. It must never guess: a variable that is there and
cannot be read is an error, and one that is not there has its default."""
from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional

NUMBER_MAX = 1 << 53


class ContractError(RuntimeError):
    """The program contract cannot be kept. The text says what is missing and how to mend it."""


@dataclass(frozen=True)
class Run:
    """One life of a program. Outside of Hanse: rank 0 of 1, epoch 1, no GPUs named, nothing to save to or resume from."""

    workload_uid: str
    workload_name: str
    namespace: str
    target: str
    node: str
    epoch: int
    rank: int
    world_size: int
    gpus: tuple[int, ...]
    array_index: Optional[int]
    array_count: Optional[int]
    checkpoint_dir: Optional[Path]
    """This rank's own in this epoch, or with `checkpoint.layout: shared` that of all ranks; None when nothing is kept of what is
    saved."""
    shared: bool
    """Whether all ranks save into one folder and resume from one."""
    interval_s: Optional[int]
    """Seconds between two checkpoints that lose least; None when it is not known."""
    save_signal: Optional[int]
    """The signal by which Hanse asks to save and go on (`checkpoint.saveSignal`); None: it never does."""
    resume_dir: Optional[Path]
    """The verified checkpoint of this rank, for reading only; None when there is nothing to resume."""
    resume_ranks: int
    """How many ranks saved what resume_dir has; 0 without one."""

    @property
    def inside(self) -> bool:
        """Whether Hanse started this program."""
        return bool(self.workload_uid) or self.checkpoint_dir is not None

    @property
    def resume_dirs(self) -> tuple[Path, ...]:
        """The checkpoint of each rank that saved, in their order, as far as this rank sees them: its own alone, or
        with `checkpoint.reshard` those of all."""
        if self.resume_dir is None:
            return ()
        if (self.resume_dir / "manifest.json").is_file():
            return (self.resume_dir,)
        return tuple(self.resume_dir / str(rank) for rank in range(self.resume_ranks))


def _number(env: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= NUMBER_MAX:
        raise ContractError(f'{name} is "{text:.40}", and must be a whole number from {least} to 2^53: unset it, or set it right')
    return int(text)


def _folder(env: Mapping[str, str], name: str) -> Optional[Path]:
    text = env.get(name, "")
    if not text:
        return None
    path = Path(text)
    if not path.is_absolute() or not path.is_dir():
        raise ContractError(f'{name} is "{text:.200}", and there is no such folder: unset it, or start the program with `hanse run`')
    return path


def _signal(env: Mapping[str, str], name: str) -> Optional[int]:
    text = env.get(name, "")
    if not text:
        return None
    number = getattr(signal, "SIG" + text, None)
    if not isinstance(number, signal.Signals):
        raise ContractError(f'{name} is "{text:.40}", which names no signal here: unset it, or name one as `kill -s` takes it')
    return int(number)


def run(env: Optional[Mapping[str, str]] = None) -> Run:
    """What the environment says; `env` is for tests."""
    env = os.environ if env is None else env
    rank, world = _number(env, "HANSE_RANK", 0, 0), _number(env, "HANSE_WORLD_SIZE", 1, 1)
    if rank >= world:
        raise ContractError(f"HANSE_RANK is {rank}, and HANSE_WORLD_SIZE {world}: ranks count from 0 to one less than the world's size")
    gpus = [word.strip() for word in env.get("HANSE_GPUS", "").split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and int(word) <= 255 for word in gpus):
        raise ContractError(f'HANSE_GPUS is "{env["HANSE_GPUS"]:.100}", and must be device indices from 0 to 255, with commas between them')
    array = "HANSE_ARRAY_INDEX" in env
    resume_dir = _folder(env, "HANSE_RESUME_DIR")
    return Run(
        workload_uid=env.get("HANSE_WORKLOAD_UID", ""),
        workload_name=env.get("HANSE_WORKLOAD_NAME", ""),
        namespace=env.get("HANSE_NAMESPACE", ""),
        target=env.get("HANSE_TARGET", ""),
        node=env.get("HANSE_NODE", ""),
        epoch=_number(env, "HANSE_EPOCH", 1, 1),
        rank=rank,
        world_size=world,
        gpus=tuple(int(word) for word in gpus),
        array_index=_number(env, "HANSE_ARRAY_INDEX", 0, 0) if array else None,
        array_count=_number(env, "HANSE_ARRAY_COUNT", 1, 1) if array else None,
        checkpoint_dir=_folder(env, "HANSE_CHECKPOINT_DIR"),
        shared=env.get("HANSE_CHECKPOINT_LAYOUT") == "shared",
        interval_s=_number(env, "HANSE_CHECKPOINT_INTERVAL", 0, 0) or None,
        save_signal=_signal(env, "HANSE_SAVE_SIGNAL"),
        resume_dir=resume_dir,
        resume_ranks=_number(env, "HANSE_RESUME_RANKS", 1, 1) if resume_dir else 0,
    )
