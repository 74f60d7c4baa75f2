"""A callback for the Trainer of Hugging Face transformers, which is imported when callback() is called:

    saver = hanse.Saver()
    trainer = Trainer(args=TrainingArguments(output_dir=str(saver.dir), ...), callbacks=[hanse.huggingface.callback(saver)], ...)
    trainer.train(resume_from_checkpoint=hanse.huggingface.resume_path(saver))

The Trainer removes older checkpoints before it tells anybody that a new one is there. The callback takes that over
(save_total_limit), so that a checkpoint is committed first and older ones go after."""
from __future__ import annotations

from typing import Any, Optional

from .environment import ContractError
from .saver import Saver

PREFIX = "checkpoint-"


def resume_path(saver: Saver) -> Optional[str]:
    """For `resume_from_checkpoint`: the folder to go on from, or None."""
    folder = saver.resume_folder(PREFIX)
    return None if folder is None else str(folder)


def _arguments_check(saver: Saver, args: Any) -> None:
    if saver.dir.resolve() != type(saver.dir)(args.output_dir).resolve():
        raise ContractError(f"output_dir is {args.output_dir}, and what is kept is {saver.dir}: set output_dir=str(saver.dir)")
    if saver.run.world_size > 1 and not saver.run.shared and not args.save_on_each_node:
        raise ContractError("save_on_each_node is False, so that the first rank alone saves: set it True, because each resumes from its own; or set checkpoint.layout: shared")
    if args.load_best_model_at_end:
        raise ContractError(
            "load_best_model_at_end is True, and the newest checkpoint alone goes along when the work moves: set it False, and evaluate "
            "at the end"
        )
    if args.save_only_model:
        raise ContractError("save_only_model is True, and without the optimizer nothing can be resumed: set it False")


def callback(saver: Saver) -> Any:
    """A TrainerCallback: saves when it is due or asked for, commits each checkpoint of the Trainer, then removes older
    ones, and exits 75 when the save was for a stop."""
    try:
        from transformers import TrainerCallback
    except ImportError as e:
        raise ContractError(f"transformers cannot be imported ({e}): install transformers and accelerate where this program runs") from e
    from . import pytorch

    class HanseCallback(TrainerCallback):  # type: ignore[misc]
        limit: Optional[int] = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
            if not saver.active:
                return
            _arguments_check(saver, args)
            if args.world_size > 1 and saver.agree is None:
                saver.agree = pytorch.agree
            if args.save_total_limit:
                self.limit, args.save_total_limit = args.save_total_limit, None

        def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> Any:
            if saver.should_save():
                control.should_save = True
            return control

        def on_save(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
            if not saver.active:
                return
            saver.commit(state.global_step, f"{PREFIX}{state.global_step}")
            if self.limit:
                saver.rotate(PREFIX, self.limit)
            saver.finish()

    return HanseCallback()
