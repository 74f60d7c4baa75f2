"""Hanse's program contract for training programs (deploy/examples/README.md, section 2).

    run = hanse.run()                     what Hanse says of this run; defaults outside of Hanse
    with hanse.Saver() as saver:          listens for the save signal
        ...
        if saver.should_save():
            with saver.step(step) as folder:
                ...                       write files below folder
            saver.finish()                exits 75 when the save was for a stop

No framework is imported here. hanse.pytorch, hanse.huggingface, hanse.lightning and hanse.orbax are imported by those
who use them."""
from .environment import ContractError, Run, run
from .manifest import File, Manifest
from .saver import EXIT_SAVED, Saver

__all__ = ["EXIT_SAVED", "ContractError", "File", "Manifest", "Run", "Saver", "run"]
