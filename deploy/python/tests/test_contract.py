#!/usr/bin/env python3
"""The package without a shim: what it reads, when it saves, what it commits, and what it refuses with which remedy."""
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import hanse  # noqa: E402
from hanse import lightning, manifest  # noqa: E402


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hanse-package-")
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name).resolve()
        self.save = self.dir / "save"
        self.save.mkdir()

    def saver(self, env=None, **more):
        saver = hanse.Saver(run=hanse.run({"HANSE_CHECKPOINT_DIR": str(self.save), **(env or {})}), **more)
        self.addCleanup(saver.close)
        return saver

    def write(self, name, data=b"data"):
        path = self.save / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def refused(self, *words):
        return self.assertRaisesRegex(hanse.ContractError, "(?s)" + ".*".join(words))


class Environment(InFolder):
    def test_outside_of_hanse(self):
        run = hanse.run({})
        self.assertEqual((run.inside, run.rank, run.world_size, run.epoch, run.gpus), (False, 0, 1, 1, ()))
        self.assertEqual((run.checkpoint_dir, run.interval_s, run.resume_dir, run.resume_ranks, run.array_index), (None,) * 3 + (0, None))

    def test_everything(self):
        run = hanse.run({
            "HANSE_WORKLOAD_UID": "u", "HANSE_WORKLOAD_NAME": "job", "HANSE_NAMESPACE": "batch", "HANSE_TARGET": "hub", "HANSE_NODE": "n1",
            "HANSE_EPOCH": str(1 << 53), "HANSE_RANK": "1", "HANSE_WORLD_SIZE": "2", "HANSE_GPUS": "0,3", "HANSE_ARRAY_INDEX": "4",
            "HANSE_ARRAY_COUNT": "9", "HANSE_CHECKPOINT_DIR": str(self.save), "HANSE_CHECKPOINT_INTERVAL": "90",
            "HANSE_RESUME_DIR": str(self.dir), "HANSE_RESUME_RANKS": "2"})  # fmt: skip
        self.assertTrue(run.inside)
        self.assertEqual((run.workload_name, run.namespace, run.target, run.node), ("job", "batch", "hub", "n1"))
        self.assertEqual((run.epoch, run.rank, run.world_size, run.gpus), (1 << 53, 1, 2, (0, 3)))
        self.assertEqual((run.array_index, run.array_count, run.interval_s), (4, 9, 90))
        self.assertEqual((run.checkpoint_dir, run.resume_dir), (self.save, self.dir))
        self.assertEqual(run.resume_dirs, (self.dir / "0", self.dir / "1"))  # reshard: no manifest beside them
        (self.dir / "manifest.json").write_text("{}", encoding="utf-8")
        self.assertEqual(run.resume_dirs, (self.dir,))

    def test_what_cannot_be_read_is_named(self):
        for name, text in (("HANSE_EPOCH", "0"), ("HANSE_EPOCH", str((1 << 53) + 1)), ("HANSE_RANK", "-1"), ("HANSE_RANK", "1"),
                           ("HANSE_RANK", "²"), ("HANSE_WORLD_SIZE", "two"), ("HANSE_GPUS", "0,x"), ("HANSE_GPUS", "256"),
                           ("HANSE_CHECKPOINT_DIR", "save"), ("HANSE_RESUME_DIR", "/nowhere/at/all"),
                           ("HANSE_CHECKPOINT_INTERVAL", "1.5"), ("HANSE_ARRAY_INDEX", "x")):  # fmt: skip
            with self.subTest(name=name, text=text), self.refused(name):
                hanse.run({name: text})


class Commits(InFolder):
    def test_manifest(self):
        self.write("step-3/a", b"one")
        self.write("step-3/deep/b", b"")
        self.write("step-3/c.tmp")
        self.write("log", b"whole, and torn")
        self.saver().commit(3, "step-3", ("log", 5))
        said = json.loads((self.save / "manifest.json").read_text(encoding="utf-8"))
        self.assertEqual(said["step"], 3)
        self.assertEqual([(f["name"], f["bytes"]) for f in said["files"]], [("log", 5), ("step-3/a", 3), ("step-3/deep/b", 0)])
        self.assertEqual(said["files"][1]["sha256"], "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed")
        self.assertEqual(manifest.read(self.save).text(), (self.save / "manifest.json").read_bytes())

    def test_synced_before_it_is_named(self):
        self.write("step-1/a")
        done = []
        name = lambda fd: os.readlink(f"/proc/self/fd/{fd}")[len(str(self.save)):]  # noqa: E731
        sync, replace = os.fsync, os.replace
        with mock.patch("os.fsync", lambda fd: (done.append(name(fd)), sync(fd))), \
                mock.patch("os.replace", lambda a, b: (done.append("replace"), replace(a, b))):  # fmt: skip
            self.saver().commit(1, self.save / "step-1")
        self.assertEqual(done, ["/step-1/a", "/step-1", "", "/.manifest.json.tmp", "replace", ""])

    def test_refusals_leave_the_manifest_before(self):
        saver = self.saver()
        self.write("a")
        saver.commit(5, "a")
        before = (self.save / "manifest.json").read_bytes()
        os.symlink("a", self.save / "link")
        os.symlink(".", self.save / "here")
        os.mkfifo(self.save / "pipe")
        self.write("/".join("123456789"))
        self.write("bad\nname")
        for what, words in ((("gone",), ("not in", "write files")), (("link",), ("link",)), (("here/a",), ("link",)), (("pipe",), ("regular",)),
                            (("../save/a",), ("no name",)), (("/etc/hostname",), ("no name",)), (("manifest.json",), ("no name",)),
                            ((), ("1 to 20000",)), (("a", ("a", 2)), ("twice",)), ((("a", 9),), ("ended 5 bytes before",)),
                            ((("a", -1),), ("number of bytes",)), (("a/b/c",), ("not in",)), (("/".join("123456789"),), ("deeper than 8",)),
                            (("bad\nname",), ("control",)), (("x" * 600,), ("512",))):  # fmt: skip
            with self.subTest(what=what), self.assertRaises(hanse.ContractError) as raised:
                saver.commit(6, *what)
            for word in words:
                self.assertIn(word, str(raised.exception))
            self.assertEqual((self.save / "manifest.json").read_bytes(), before)
        for step in (-1, 1.0, True, (1 << 53) + 1):
            with self.subTest(step=step), self.refused("step", "2\\^53"):
                saver.commit(step, "a")

    def test_steps_grow(self):
        saver = self.saver()
        self.write("a")
        saver.commit(5, "a")
        saver.commit(5, "a")  # the same once more says nothing new
        with self.refused("steps only grow"):
            saver.commit(4, "a")
        self.write("a", b"other")
        with self.refused("stays as it is"):
            saver.commit(5, "a")

    def test_older_go_after_the_commit(self):
        saver = self.saver(keep=2)
        for step in (1, 2, 30):
            with saver.step(step) as folder:
                self.assertEqual(sorted(p.name for p in self.save.glob("step-*")), {1: ["step-1.tmp"], 2: ["step-1", "step-2.tmp"],
                                 30: ["step-1", "step-2", "step-30.tmp"]}[step])  # fmt: skip
                (folder / "a").write_bytes(b"x")
        self.assertEqual(sorted(p.name for p in self.save.iterdir()), ["manifest.json", "step-2", "step-30"])
        with self.assertRaises(ZeroDivisionError), saver.step(31) as folder:
            (folder / "a").write_bytes(b"half")
            _ = 1 / 0
        self.assertEqual(manifest.read(self.save).step, 30)
        self.assertEqual(sorted(p.name for p in self.save.glob("step-*")), ["step-2", "step-30"])
        with self.refused("step 30 has been saved"), saver.step(30):
            pass

    def test_what_the_manifest_names_is_never_removed(self):
        saver = self.saver()
        for step in (1, 2):
            self.write(f"step-{step}/a")
        saver.commit(1, "step-1")
        saver.rotate("step-", 1)
        self.assertTrue((self.save / "step-1").exists())


class When(InFolder):
    def test_signal(self):
        before = signal.getsignal(signal.SIGTERM)
        with self.saver() as saver:
            saver.finish()  # nobody has asked
            self.assertFalse(saver.should_save() or saver.stopping)
            os.kill(os.getpid(), signal.SIGTERM)
            self.assertTrue(saver.should_save() and saver.stopping)
            said = io.StringIO()
            with self.assertRaises(SystemExit) as end, contextlib.redirect_stderr(said):
                saver.finish()
            self.assertEqual(end.exception.code, 143)
            self.assertIn("without a save", said.getvalue())
            with saver.step(1) as folder:
                (folder / "a").write_bytes(b"x")
            with self.assertRaises(SystemExit) as end:
                saver.finish()
            self.assertEqual(end.exception.code, 75)
        self.assertIs(signal.getsignal(signal.SIGTERM), before)

    def test_another_signal(self):
        saver = self.saver(signals=(signal.SIGUSR1,))
        os.kill(os.getpid(), signal.SIGUSR1)
        self.assertTrue(saver.stopping)

    def test_save_and_go_on(self):
        for text, number in (("USR1", signal.SIGUSR1), ("WINCH", signal.SIGWINCH)):
            with self.subTest(text), self.saver({"HANSE_SAVE_SIGNAL": text}) as saver:
                self.assertFalse(saver.should_save())
                os.kill(os.getpid(), number)
                self.assertTrue(saver.should_save())
                self.assertFalse(saver.stopping)
                with saver.step(int(number)) as folder:
                    (folder / "a").write_bytes(b"a")
                    os.kill(os.getpid(), number)  # comes while it saves: what is saved answers it
                self.assertFalse(saver.should_save())
                saver.finish()  # nobody has asked for the end
        with self.refused("names no signal"):
            self.saver({"HANSE_SAVE_SIGNAL": "NONE"})

    def test_interval(self):
        with mock.patch("time.monotonic") as clock:
            clock.return_value = 100.0
            saver = self.saver({"HANSE_CHECKPOINT_INTERVAL": "60"})
            mine = self.saver({"HANSE_CHECKPOINT_INTERVAL": "60"}, interval_s=0.5)
            never = self.saver()
            clock.return_value = 159.0
            self.assertEqual([s.should_save() for s in (saver, mine, never)], [False, True, False])
            clock.return_value = 160.0
            self.assertTrue(saver.should_save() and not saver.stopping)
            self.write("a")
            saver.commit(1, "a")
            clock.return_value = 219.0
            self.assertFalse(saver.should_save())

    def test_ranks_agree(self):
        asked = []
        saver = self.saver(agree=lambda n: asked.append(n) or 2)
        self.assertFalse(saver.stopping)  # another rank has been asked to stop
        self.assertTrue(saver.should_save() and saver.stopping)
        self.assertEqual(asked, [0])
        saver = self.saver(agree=lambda n: 0)
        os.kill(os.getpid(), signal.SIGTERM)
        self.assertFalse(saver.should_save() or saver.stopping)  # what all say counts, at the step at which all say it

    def test_outside_nothing_changes(self):
        before = signal.getsignal(signal.SIGTERM)
        with hanse.Saver(self.dir / "mine", run=hanse.run({})) as saver:
            self.assertIs(signal.getsignal(signal.SIGTERM), before)
            self.assertFalse(saver.should_save())
            with saver.step(7) as folder:
                (folder / "a").write_bytes(b"x")
            self.assertEqual([p.name for p in (self.dir / "mine").iterdir()], ["step-7"])
            saver.finish()
            self.assertEqual((saver.resume_folder(), saver.resume_step, saver.committed), (None, None, None))
            with self.refused("not in"):
                saver.commit(8, "gone")

    def test_who_cannot_save(self):
        with mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": "2"}), self.refused("LOCAL_WORLD_SIZE", "one process a rank"):
            self.saver()
        code = "import threading, hanse\nt = threading.Thread(target=hanse.Saver); t.start(); t.join()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                              env={"HANSE_CHECKPOINT_DIR": str(self.save), "PYTHONPATH": sys.path[0], "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertIn("main thread only: make it there", done.stderr)
        with self.refused("keep is 0"):
            self.saver(keep=0)


class Resumes(InFolder):
    def earlier(self, folder, step):
        (folder / f"step-{step}").mkdir(parents=True)
        (folder / f"step-{step}" / "a").write_bytes(b"x")
        manifest.put(folder, manifest.measure(folder, step, [f"step-{step}"]))

    def test_own(self):
        self.earlier(self.dir / "was", 12)
        saver = self.saver({"HANSE_RESUME_DIR": str(self.dir / "was"), "HANSE_RESUME_RANKS": "2", "HANSE_RANK": "1", "HANSE_WORLD_SIZE": "2"})
        self.assertEqual((saver.resume_step, saver.resume_folder()), (12, self.dir / "was" / "step-12"))
        with self.refused("has no folder checkpoint-N"):
            saver.resume_folder("checkpoint-")

    def test_of_all(self):
        for rank in (0, 1):
            self.earlier(self.dir / "was" / str(rank), 12 + rank)
        env = {"HANSE_RESUME_DIR": str(self.dir / "was"), "HANSE_RESUME_RANKS": "2"}
        both = self.saver({**env, "HANSE_RANK": "1", "HANSE_WORLD_SIZE": "2"})
        self.assertEqual((both.resume_step, both.resume_folder()), (12, self.dir / "was" / "1" / "step-13"))
        with self.refused("2 ranks saved, and 1 resume"):
            self.saver(env).resume_folder()


class Together(InFolder):
    """checkpoint.layout: shared. The other rank is played by what agree= returns."""

    SHARED = {"HANSE_CHECKPOINT_LAYOUT": "shared", "HANSE_WORLD_SIZE": "2"}

    def test_the_first_commits_when_all_have_written(self):
        met = []

        def agree(number):  # the other writes while this one waits until the folder is there, and until all have written
            met.append((number, (self.save / "manifest.json").exists()))
            if len(met) == 1:
                (self.save / "step-3.tmp/other").write_bytes(b"shard")
            return number

        saver = self.saver(self.SHARED, agree=agree)
        with saver.step(3) as folder:
            (folder / "own").write_bytes(b"shard")
        self.assertEqual(met, [(0, False)] * 3 + [(0, True)])
        self.assertEqual([f.name for f in manifest.read(self.save).files], ["step-3/other", "step-3/own"])

    def test_the_others_write_no_manifest(self):
        saver = self.saver({**self.SHARED, "HANSE_RANK": "1"}, agree=lambda number: number)
        (self.save / "step-3.tmp").mkdir()  # by the first
        with saver.step(3) as folder:
            (folder / "own").write_bytes(b"shard")
        self.assertEqual((os.listdir(self.save), saver.committed.step), (["step-3.tmp"], 3))
        saver.rotate("step-", 1)

    def test_a_commit_that_fails_fails_for_all(self):
        with self.refused("first rank could not commit step 3"):
            self.saver({**self.SHARED, "HANSE_RANK": "1"}, agree=lambda number: 1).commit(3, "own")
        first = self.saver(self.SHARED, agree=lambda number: number)
        with self.refused('"absent" is not in'):
            first.commit(3, "absent")
        self.assertIsNone(first.committed)

    def test_who_cannot_wait_is_refused(self):
        self.write("own")
        with self.refused("2 processes save into one folder", "agree="):
            self.saver(self.SHARED).commit(3, "own")
        with mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": "2", "RANK": "1", "WORLD_SIZE": "2"}):  # of torchrun
            saver = self.saver({"HANSE_CHECKPOINT_LAYOUT": "shared"}, agree=lambda number: number)
        self.assertEqual((saver.together, saver.first), (True, False))


class LightningHooks(InFolder):
    class Trainer:
        world_size, global_step = 1, 0

        def save_checkpoint(self, path):
            Path(path).write_bytes(b"weights")

    def test_saves_and_ends(self):
        saver, trainer = self.saver(), self.Trainer()
        callback = lightning.Callback(saver)
        callback.setup(trainer, None, stage="fit")
        callback.on_train_start(trainer, None)
        callback.on_train_batch_end(trainer, None, None, None, 0)
        self.assertIsNone(saver.committed)
        self.assertIsNone(callback.resume_path())
        os.kill(os.getpid(), signal.SIGTERM)
        trainer.global_step = 4
        with self.assertRaises(SystemExit) as end:
            callback.on_train_batch_end(trainer, None, None, None, 1)
        self.assertEqual((end.exception.code, manifest.read(self.save).step), (75, 4))
        callback.on_exception(trainer, None, end.exception)  # its own exit comes by here as well
        trainer.world_size = 2
        with self.refused("2 processes", "one device"):
            callback.on_train_start(trainer, None)
        with self.assertRaises(AttributeError):
            callback.hook_of_nobody()

    def test_saves_when_the_trainer_leaves_by_itself(self):
        """Lightning ends its loops by a SystemExit without a status, which would be 0: finished."""
        saver, trainer = self.saver(), self.Trainer()
        callback = lightning.Callback(saver)
        callback.on_exception(trainer, None, SystemExit())  # nobody has asked
        os.kill(os.getpid(), signal.SIGTERM)
        callback.on_exception(trainer, None, ValueError())  # a fault stays one
        self.assertIsNone(saver.committed)
        with self.assertRaises(SystemExit) as end:
            callback.on_exception(trainer, None, SystemExit())  # before the first step
        self.assertEqual(end.exception.code, 128 + signal.SIGTERM)
        trainer.global_step = 7
        with self.assertRaises(SystemExit) as end:
            callback.on_exception(trainer, None, SystemExit())
        self.assertEqual((end.exception.code, manifest.read(self.save).step), (75, 7))


class Lazy(unittest.TestCase):
    def test_no_framework_is_imported_or_needed(self):
        code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "jax", "orbax", "pytorch_lightning", "lightning"):
            raise ImportError(name + " is not here")
sys.meta_path.insert(0, Absent())
import hanse, hanse.pytorch, hanse.huggingface, hanse.lightning, hanse.orbax
saver = hanse.Saver()
for call in (lambda: hanse.pytorch.save(saver, 1, {}), lambda: hanse.pytorch.agree(1), lambda: hanse.huggingface.callback(saver),
             lambda: hanse.pytorch.save_distributed(saver, 1, {}), lambda: hanse.orbax.save(saver, 1, {})):
    try:
        call()
        raise SystemExit("not refused")
    except hanse.ContractError as e:
        assert "cannot be imported" in str(e) and "install" in str(e), e
"""
        with tempfile.TemporaryDirectory(prefix="hanse-package-") as folder:
            subprocess.run([sys.executable, "-c", code], check=True, cwd=folder, env={"PYTHONPATH": sys.path[0], "PYTHONDONTWRITEBYTECODE": "1"})


if __name__ == "__main__":
    unittest.main()
