"""When to save, and what makes a save count. A Saver must never say that something was saved before its manifest is on
disk, and must never remove what the manifest names."""
from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Callable, Iterator, Optional, Sequence

from . import manifest
from .environment import ContractError, Run
from .environment import run as read_environment

EXIT_SAVED = 75

_NOTHING, _SAVE, _STOP = 0, 1, 2


class Saver:
    """Saves of one rank, or with `checkpoint.layout: shared` of all ranks together: they write into one folder, and the first
    commits it when all have written. Outside of Hanse, and in a workload without `checkpoint`, it listens for no signal, files go to
    `fallback`, and commit() only looks whether they are there.

    fallback    the folder that stands for HANSE_CHECKPOINT_DIR when there is none; made when it is first written to
    interval_s  seconds between two saves; None: HANSE_CHECKPOINT_INTERVAL, or never without one
    keep        how many folders of step() stay
    signals     those that ask for a save and the end: what `checkpoint.signal` of the workload says
    agree       takes a number and returns the largest that any rank gave; for ranks that must save at one step
    """

    def __init__(
        self,
        fallback: manifest.PathText = "checkpoints",
        *,
        interval_s: Optional[float] = None,
        keep: int = 1,
        signals: Sequence[int] = (signal.SIGTERM,),
        agree: Optional[Callable[[int], int]] = None,
        run: Optional[Run] = None,
    ) -> None:
        if keep < 1:
            raise ContractError(f"keep is {keep}: at least the newest checkpoint stays, so give 1 or more")
        self.run = read_environment() if run is None else run
        self.active = self.run.checkpoint_dir is not None
        # As torchrun counts its processes, or as Hanse does.
        self.first = int(os.environ.get("RANK") or self.run.rank) == 0
        self._processes = int(os.environ.get("WORLD_SIZE") or self.run.world_size)
        self.dir = (self.run.checkpoint_dir or Path(fallback)).absolute()
        self.interval_s = self.run.interval_s if interval_s is None else interval_s
        self.keep, self.agree = keep, agree
        self.committed: Optional[manifest.Manifest] = None
        self._saved_at, self._asked, self._stop = time.monotonic(), 0, False
        self._save_wanted = False  # asked to save and go on (checkpoint.saveSignal), and not yet answered
        self._handlers: dict[int, Any] = {}
        if not self.active:
            return
        if int(os.environ.get("LOCAL_WORLD_SIZE") or 1) > 1 and not self.run.shared:
            raise ContractError(
                "LOCAL_WORLD_SIZE says that several processes share this rank's HANSE_CHECKPOINT_DIR, and one alone may commit "
                "there: start one process a rank (spec.gang.workers counts them), or set checkpoint.layout: shared"
            )
        if threading.current_thread() is not threading.main_thread():
            raise ContractError("a Saver listens for signals, which Python allows in the main thread only: make it there")
        for number in signals:
            self._handlers[number] = signal.signal(number, self._hear)
        number = self.run.save_signal
        if number is not None and number not in self._handlers:
            self._handlers[number] = signal.signal(number, self._hear_save)

    def _hear(self, number: int, _frame: Optional[FrameType]) -> None:
        self._asked = number

    def _hear_save(self, _number: int, _frame: Optional[FrameType]) -> None:
        self._save_wanted = True

    def close(self) -> None:
        """Puts back the signal handlers that were there before."""
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._handlers.clear()

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    # ---- when ----
    @property
    def stopping(self) -> bool:
        """Whether this program was asked to save and end; with `agree`, whether should_save() has heard it of any rank."""
        return self._stop if self.agree else self._asked != 0

    def should_save(self) -> bool:
        """Ask after each step. With `agree` all ranks must ask after the same steps, and all get one answer."""
        due = self.interval_s is not None and time.monotonic() - self._saved_at >= self.interval_s
        want = _STOP if self._asked else _SAVE if due or self._save_wanted else _NOTHING
        if self.agree:
            want = self.agree(want)
            self._stop = self._stop or want >= _STOP
        return want > _NOTHING

    # ---- what ----
    @property
    def together(self) -> bool:
        """Whether several processes save into one folder."""
        return self.active and self.run.shared and self._processes > 1

    def _meet(self, failed: int = 0) -> bool:
        """Goes on when all ranks are here; whether any has failed."""
        if self.agree is None:
            raise ContractError(
                f"{self._processes} processes save into one folder, and nothing lets them wait for each other: make the Saver with agree= "
                "(hanse.pytorch.agree, hanse.orbax.agree)"
            )
        return self.agree(failed) > 0

    def _commit_together(self, step: int, what: Sequence[manifest.What]) -> None:
        failed, new = None, manifest.Manifest(step, ())
        self._meet()  # all have written
        if self.first:
            try:
                new = manifest.measure(self.dir, step, what)
                manifest.put(self.dir, new)
            except (ContractError, OSError) as e:
                failed = e
        if self._meet(1 if failed else 0):
            raise failed or ContractError(f"the first rank could not commit step {step}: its log says why")
        self.committed, self._saved_at = new, time.monotonic()

    def commit(self, step: int, *what: manifest.What) -> None:
        """Makes what was written below `dir` the checkpoint of this rank: files, folders, or (file, bytes) for a file
        that goes on growing. Returns when it is on disk. Older files may be removed after it, and not before."""
        if not self.active:
            manifest.expand(self.dir, what)
            self._saved_at = time.monotonic()
            return
        if self.together:
            self._commit_together(step, what)
            return
        new = manifest.measure(self.dir, step, what)
        if self.committed is not None and new.step <= self.committed.step:
            if new == self.committed:
                return
            raise ContractError(f"step {step} is committed after step {self.committed.step}: steps only grow, and what a step saved stays as it is")
        wanted, self._save_wanted = self._save_wanted, False  # a request that comes from here on is another one
        try:
            manifest.put(self.dir, new)
        except BaseException:
            self._save_wanted = self._save_wanted or wanted
            raise
        self.committed, self._saved_at = new, time.monotonic()

    @contextmanager
    def step(self, step: int) -> Iterator[Path]:
        """A folder to write into. When the block ends well it is committed as `step-N`, and older ones are removed."""
        if self.committed is not None and self.committed.step == step:
            raise ContractError(f"step {step} has been saved: ask should_save() once a step, and save when it says so")
        name, mine = f"step-{step}", self.first or not self.together
        temporary = self.dir / f"{name}.tmp"
        if mine:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
        if self.together:
            self._meet()  # the folder is there
        try:
            yield temporary
        except BaseException:
            if mine:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        if self.together:
            self._meet()  # all have written
        if mine:
            shutil.rmtree(self.dir / name, ignore_errors=True)  # of a try that was ended before its manifest
            os.rename(temporary, self.dir / name)
        self.commit(step, name)
        if mine:
            self.rotate("step-", self.keep)

    def rotate(self, prefix: str, keep: int) -> None:
        """Removes folders PREFIX-NUMBER but the `keep` newest, and never one that the manifest names. Of ranks that save together the
        first does."""
        if self.together and not self.first:
            return
        named = {f.name.split("/")[0] for f in self.committed.files} if self.committed else set()
        found = [p for p in self.dir.glob(prefix + "*") if p.name[len(prefix):].isdigit() and p.is_dir()]
        for path in sorted(found, key=lambda p: int(p.name[len(prefix):]))[:-keep]:
            if path.name not in named:
                shutil.rmtree(path)

    # ---- the end, and the beginning ----
    def finish(self) -> None:
        """Exits with 75 when a stop was asked for and a checkpoint is there; without one, as the signal would have ended
        it. Returns when nobody has asked."""
        if not self.stopping:
            return
        if self.committed is None:
            print("hanse: stopped without a save: commit() was not called before finish()", file=sys.stderr)
            sys.exit(128 + (self._asked or signal.SIGTERM))
        sys.exit(EXIT_SAVED)

    @property
    def resume_step(self) -> Optional[int]:
        """The step of what is resumed from; None when the program starts anew."""
        steps = [m.step for m in map(manifest.read, self.run.resume_dirs) if m]
        return min(steps) if steps else None

    def resume_folder(self, prefix: str = "step-") -> Optional[Path]:
        """The newest folder PREFIX-NUMBER of this rank's earlier checkpoint, for reading only; None when there is nothing
        to resume."""
        folders = self.run.resume_dirs
        if not folders:
            return None
        if len(folders) > 1 and len(folders) != self.run.world_size:
            raise ContractError(
                f"{len(folders)} ranks saved, and {self.run.world_size} resume: read run.resume_dirs, or leave checkpoint.reshard false"
            )
        own = folders[self.run.rank] if len(folders) > 1 else folders[0]
        found = [p for p in own.glob(prefix + "*") if p.name[len(prefix):].isdigit() and p.is_dir()]
        if not found:
            raise ContractError(f"{own} has no folder {prefix}N: resume with what saved it, or start anew as another workload")
        return max(found, key=lambda p: int(p.name[len(prefix):]))
