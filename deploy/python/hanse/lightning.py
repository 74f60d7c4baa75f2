"""A callback for Lightning's Trainer, or for any trainer that calls the same hooks. Nothing of Lightning is imported:

    saver = hanse.Saver()
    callback = hanse.lightning.Callback(saver)
    trainer = Trainer(callbacks=[callback], ...)
    trainer.fit(model, ckpt_path=callback.resume_path())

Lightning puts a handler of its own before the Saver's, and on SIGTERM leaves its loops by a SystemExit without a status: to Hanse
a program that does so has finished. The callback saves then, too, and says what is true."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Optional

from .environment import ContractError
from .saver import EXIT_SAVED, Saver

FILE = "model.ckpt"


class Callback:
    """After each batch, and when Lightning is about to leave: saves when it is due or asked for, commits, and exits 75 when it was
    for a stop."""

    state_key = "hanse"

    def __init__(self, saver: Saver) -> None:
        self.saver = saver

    @property
    def _legacy_state_key(self) -> type:
        return type(self)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on_") or name in ("setup", "teardown"):  # hooks that this callback has no use for
            return lambda *_args, **_more: None
        raise AttributeError(name)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """It keeps nothing."""

    def resume_path(self) -> Optional[str]:
        """For `ckpt_path`: the file to go on from, or None."""
        folder: Optional[Path] = self.saver.resume_folder()
        return None if folder is None else str(folder / FILE)

    def on_train_start(self, trainer: Any, model: Any) -> None:
        world = getattr(trainer, "world_size", 1)
        if self.saver.active and world > 1:
            raise ContractError(
                f"this trainer has {world} processes, and saves in the first alone, so that the others have nothing to resume "
                "from: use one device, or hanse.pytorch.save_distributed in a loop of your own"
            )

    def on_train_batch_end(self, trainer: Any, model: Any, *_batch: Any, **_more: Any) -> None:
        if self.saver.should_save():
            self._save(trainer)
            self.saver.finish()

    def on_exception(self, trainer: Any, model: Any, exception: BaseException) -> None:
        if not isinstance(exception, SystemExit) or exception.code == EXIT_SAVED or not self.saver.stopping:
            return
        if trainer.global_step > 0:
            self._save(trainer)
        self.saver.finish()

    def _save(self, trainer: Any) -> None:
        committed = self.saver.committed
        if committed is None or committed.step != trainer.global_step:  # several batches may make one step
            with self.saver.step(trainer.global_step) as folder:
                trainer.save_checkpoint(folder / FILE)
