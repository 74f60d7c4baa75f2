#!/usr/bin/env python3
"""witness.py must see two lives at once, and must not see them where there are none."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import witness  # noqa: E402


def line(t_ms, event, uid="u1", epoch=1, pid=100, rank=0, **more):
    return json.dumps({"t": t_ms * 1000000, "wall": 0, "event": event, "uid": uid, "name": "job",
                       "namespace": "batch", "epoch": epoch, "rank": rank, "target": "fra-hub",
                       "node": "fra-n1", "pid": pid, "step": t_ms, **more}) + "\n"


def check(text):
    """(exit status, standard error) of `witness.py FILE`."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(text)
        file.flush()
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            status = witness.main([file.name])
        return status, err.getvalue()


def life(begin, end, stop=True, **who):
    beats = [line(t, "heartbeat", **who) for t in range(begin + 100, end, 100)]
    last = line(end, "stop" if stop else "heartbeat", **who)
    return [line(begin, "start", **who)] + beats + [last]


class Witness(unittest.TestCase):
    def test_overlapping_epochs_fail_and_are_named(self):
        status, err = check("".join(life(0, 1000, epoch=1, pid=10) + life(900, 2000, epoch=2, pid=20)))
        self.assertEqual(status, 1)
        for word in ("OVERLAP", "epoch 1 pid 10", "epoch 2 pid 20", "100.0 ms", "uid u1"):
            self.assertIn(word, err)

    def test_same_epoch_two_pids_fail(self):
        self.assertEqual(check("".join(life(0, 1000, pid=10) + life(500, 800, pid=20)))[0], 1)

    def test_life_within_life_is_found_beyond_the_neighbour(self):
        text = life(0, 5000, pid=1) + life(100, 200, pid=2, epoch=2) + life(4000, 4500, pid=3, epoch=3)
        self.assertEqual(check("".join(text))[1].count("OVERLAP"), 2)

    def test_killed_process_ends_at_its_last_heartbeat(self):
        first = life(0, 1000, stop=False, pid=10)
        self.assertEqual(check("".join(first + life(1000, 2000, epoch=2, pid=20)))[0], 0)
        self.assertEqual(check("".join(first + life(999, 2000, epoch=2, pid=20)))[0], 1)

    def test_heartbeat_of_an_old_epoch_after_the_new_start_fails(self):
        late = [line(2500, "heartbeat", epoch=1, pid=10)]
        text = life(0, 1000, stop=False, pid=10) + life(2000, 3000, epoch=2, pid=20) + late
        self.assertEqual(check("".join(text))[0], 1)

    def test_ranks_and_workloads_may_live_together(self):
        text = (life(0, 1000, pid=1, rank=0) + life(0, 1000, pid=2, rank=1) +
                life(0, 1000, pid=3, uid="u2"))
        self.assertEqual(check("".join(text)), (0, ""))

    def test_pid_reused_after_its_stop_is_another_life(self):
        self.assertEqual(check("".join(life(0, 1000) + life(2000, 3000)))[0], 0)

    def test_line_after_stop_or_without_start_is_a_fault(self):
        self.assertEqual(check("".join(life(0, 1000)) + line(1100, "heartbeat"))[0], 1)
        self.assertEqual(check(line(0, "heartbeat"))[0], 1)

    def test_what_a_move_lost(self):
        text = [line(0, "start"), line(300, "saved"), line(500, "stop"),
                line(600, "start", epoch=2, pid=101), line(601, "resumed", epoch=2, pid=101).replace('"step": 601', '"step": 300')]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(text))
            file.flush()
            found = witness.read(file.name)
        (move,) = witness.moves(found)
        self.assertEqual((move.lost, round(move.pause, 3), move.new.resumed), (200, 0.1, 300))
        self.assertEqual(witness.false_resumes(found), [])

    def test_resumed_from_what_nobody_saved_fails(self):
        text = "".join(life(0, 1000, pid=10)) + line(1100, "start", epoch=2, pid=11) + line(1101, "resumed", epoch=2, pid=11)
        status, err = check(text)
        self.assertEqual(status, 1)
        self.assertIn("nobody saved", err)

    def test_resumed_from_what_was_being_saved(self):
        """Killed between the last byte and its line; but who said why it stopped has saved, or has not."""
        killed = [line(0, "start"), line(900, "saving", step=300)]
        resumed = [line(1100, "start", epoch=2, pid=11), line(1101, "resumed", epoch=2, pid=11, step=300)]
        for stop, status in (([], 0), ([line(950, "stop")], 1)):
            self.assertEqual(check("".join(killed + stop + resumed))[0], status)

    def test_bad_line_is_no_evidence_but_a_torn_last_one_is_forgiven(self):
        good = "".join(life(0, 1000))
        self.assertEqual(check("garbage\n" + good)[0], 2)
        self.assertEqual(check(line(0, "start", uid="") + good)[0], 2)
        self.assertEqual(check(good + '{"t":12')[0], 0)


if __name__ == "__main__":
    unittest.main()
