#!/usr/bin/env python3
"""The trainer keeps its contract: same bits undisturbed, stopped and resumed; nothing torn or foreign is resumed.
Usage: test_trainer.py TRAINER"""
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import witness  # noqa: E402

DATA = os.path.join(HERE, "..", "data", "digits.csv")
TRAINER = ""


class Trainer(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = self.folder.name

    def path(self, name, folder=False):
        path = os.path.join(self.dir, name)
        if folder:
            os.mkdir(path)
        return path

    def start(self, *args, preexec_fn=None, **env):
        keep = {k: v for k, v in os.environ.items() if not k.startswith("HANSE_") and k != "WITNESS_FILE"}
        child = subprocess.Popen([TRAINER, "--data", DATA, *args], stdout=subprocess.PIPE, text=True,
                                 stderr=subprocess.PIPE, env={**keep, **env}, preexec_fn=preexec_fn)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)  # nothing outlives a test that failed
        return child

    def finish(self, *args, **env):
        child = self.start(*args, **env)
        out, err = child.communicate(timeout=60)
        return child.returncode, out, err

    def result(self, *args, **env):
        path = self.path("result.json")
        status, _, err = self.finish("--result", path, *args, **env)
        self.assertEqual((status, err), (0, ""))
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def wait_for(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), deadline, "waited 30 s in vain")
            time.sleep(0.01)

    def stopped_checkpoint(self, *args):
        """The folder of a run that was told to stop after its first periodic checkpoint."""
        folder = self.path("epoch-1", folder=True)
        child = self.start("--pace-ms", "2", "--checkpoint-every", "10", *args, HANSE_CHECKPOINT_DIR=folder)
        self.wait_for(lambda: os.path.exists(os.path.join(folder, "manifest.json")))
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=30)
        self.assertEqual((child.returncode, err), (75, ""))
        self.assertIn("saved step=", out)
        return folder

    def test_learns(self):
        self.assertGreater(self.result("--steps", "1000")["accuracy"], 0.93)

    def test_seed_and_shard_change_the_result_and_nothing_else_does(self):
        once = self.result("--steps", "200")
        self.assertEqual(once, self.result("--steps", "200", "--pace-ms", "1"))
        self.assertNotEqual(once["digest"], self.result("--steps", "200", "--seed", "2")["digest"])
        self.assertNotEqual(once["digest"], self.result("--steps", "200", HANSE_RANK="1",
                                                        HANSE_WORLD_SIZE="2")["digest"])

    def test_stopped_and_resumed_equals_undisturbed(self):
        folder = self.stopped_checkpoint("--steps", "2000")
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        for entry in manifest["files"]:
            with open(os.path.join(folder, entry["name"]), "rb") as file:
                content = file.read()
            self.assertEqual((len(content), hashlib.sha256(content).hexdigest()),
                             (entry["bytes"], entry["sha256"]))
        resumed = self.result("--steps", "2000", HANSE_RESUME_DIR=folder)
        self.assertEqual(resumed.pop("resumedFrom"), manifest["step"])
        self.assertTrue(0 < manifest["step"] < 2000)
        undisturbed = self.result("--steps", "2000")
        del undisturbed["resumedFrom"]
        self.assertEqual(resumed, undisturbed)

    def test_torn_altered_and_foreign_checkpoints_are_refused(self):
        folder = self.stopped_checkpoint("--steps", "2000")
        path = os.path.join(folder, "manifest.json")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        state = os.path.join(folder, json.loads(text)["files"][0]["name"])
        with open(state, "rb") as file:
            content = file.read()

        def refused(why, *args):
            status, _, err = self.finish("--steps", "2000", *args, HANSE_RESUME_DIR=folder)
            self.assertEqual(status, 1)
            self.assertIn(why, err)

        def put(file_path, data):
            with open(file_path, "wb") as file:
                file.write(data)

        refused("another run", "--seed", "7")
        put(state, content[:-1] + bytes([content[-1] ^ 1]))
        refused("size or SHA-256 differs")
        put(state, content[:-8])
        refused("has not the size")
        put(state, content)
        put(path, text[:20].encode())
        refused("not JSON")
        os.unlink(path)
        refused("cannot be read")

    def test_stop_without_a_place_to_save_is_not_called_saved(self):
        file = self.path("witness.jsonl")
        child = self.start("--serve", "--steps", "1", WITNESS_FILE=file, HANSE_WORKLOAD_UID="u",
                           HANSE_EPOCH="1")
        self.wait_for(lambda: os.path.exists(file) and os.path.getsize(file) > 0)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=30)
        self.assertEqual(child.returncode, 128 + signal.SIGTERM)

    def test_stop_that_arrives_in_the_last_step_is_not_lost(self):
        def pending():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            os.kill(os.getpid(), signal.SIGTERM)

        child = self.start("--serve", "--steps", "1", preexec_fn=pending)
        child.wait(timeout=30)
        self.assertEqual(child.returncode, 128 + signal.SIGTERM)

    def test_witness_sees_the_whole_life(self):
        file = self.path("witness.jsonl")
        who = {"HANSE_WORKLOAD_UID": "u-1", "HANSE_EPOCH": "3", "HANSE_RANK": "1", "HANSE_WORLD_SIZE": "2",
               "HANSE_WORKLOAD_NAME": 'a"b', "WITNESS_FILE": file}
        self.assertEqual(self.finish("--steps", "3", "--pace-ms", "350", **who)[0], 0)
        (life,) = witness.read(file)
        self.assertEqual((life.uid, life.rank, life.epoch, life.name), ("u-1", 1, "3", "a?b"))
        self.assertEqual((life.reason, life.exit, life.last_step), ("finished", 0, 3))
        self.assertGreaterEqual(life.beats, 4)  # the pace is longer than the beat: the timer's own lines
        self.assertEqual(witness.faults([life]), [])

    def test_witness_sees_what_was_saved_and_resumed_from(self):
        file = self.path("witness.jsonl")
        folder = self.path("epoch-1", folder=True)
        who = {"HANSE_WORKLOAD_UID": "u-1", "WITNESS_FILE": file}
        self.assertEqual(self.finish("--steps", "30", "--checkpoint-every", "20", HANSE_CHECKPOINT_DIR=folder, HANSE_EPOCH="1",
                                     **who)[0], 0)
        self.assertEqual(self.finish("--steps", "30", HANSE_RESUME_DIR=folder, HANSE_EPOCH="2", **who)[0], 0)
        first, second = witness.read(file)
        self.assertEqual((first.saved, first.resumed, second.resumed, second.saved), ([20], -1, 20, []))
        self.assertEqual([move.lost for move in witness.moves([first, second])], [10])

    def test_a_program_that_knows_no_signal(self):
        folder = self.path("epoch-1", folder=True)
        child = self.start("--steps", "40", "--pace-ms", "20", "--ignore-stop", "--checkpoint-every", "10", HANSE_CHECKPOINT_DIR=folder)
        self.wait_for(lambda: os.path.exists(os.path.join(folder, "manifest.json")))
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=30)
        self.assertEqual(child.returncode, 0)

    def test_bad_usage(self):
        for args in (["--steps", "-1"], ["--rank", "1"], ["--nonsense"], ["word"]):
            self.assertEqual(self.finish(*args)[0], 2)


if __name__ == "__main__":
    TRAINER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
