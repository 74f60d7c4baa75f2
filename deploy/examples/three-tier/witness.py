#!/usr/bin/env python3
"""Reads a witness file and says whether anything ran twice.

Every process of the main job appends its start, heartbeats and stop to a file that Hanse does not know
(trainer/witness.h), and the steps that it saved or resumed from. A process lives from its first line to its stop
line, or to its last heartbeat when it was killed. Two processes of one (uid, rank) that live at the same time are the
one thing that must never be: exit status 1, and both are named. So does a process that
resumed from a step that none before it had saved, or was killed while it saved (the last bytes may be written, and the line not). A line that cannot be read is evidence lost, so it fails as well, except a torn
last line. Standard library only; imported by `run` and by tests.
"""
import argparse
import json
import sys
from dataclasses import dataclass, field

EVENTS = ("start", "heartbeat", "resumed", "saving", "saved", "stop")


class WitnessError(Exception):
    """The file is no evidence: a line that is not one of ours."""


@dataclass
class Life:
    """One process as the witness saw it; times in nanoseconds of CLOCK_BOOTTIME."""
    uid: str
    rank: int
    epoch: str
    pid: int
    name: str = ""
    namespace: str = ""
    target: str = ""
    node: str = ""
    gpus: str = ""
    begin: int = 0
    end: int = 0
    first_step: int = 0
    last_step: int = 0
    beats: int = 0
    longest_gap: int = 0
    resumed: int = -1  # the step, or -1: it began at the beginning
    saved: list = field(default_factory=list)
    saving: int = -1  # the step, until it is saved
    started: bool = False
    stopped: bool = False
    reason: str = ""
    exit: int = -1
    faults: list = field(default_factory=list)

    def __str__(self):
        end = f"{self.reason} {self.exit}" if self.stopped else "no stop line"
        return (f"{self.namespace}/{self.name} rank {self.rank} epoch {self.epoch} pid {self.pid} on "
                f"{self.target}/{self.node} [{self.begin / 1e9:.3f} s, {self.end / 1e9:.3f} s] ({end})")


@dataclass
class Overlap:
    uid: str
    first: Life
    second: Life

    @property
    def nanoseconds(self):
        return min(self.first.end, self.second.end) - self.second.begin

    def __str__(self):
        return (f"two lives at once for {self.nanoseconds / 1e6:.1f} ms, uid {self.uid}:\n"
                f"    {self.first}\n    {self.second}")


def parse_line(text, number):
    try:
        line = json.loads(text)
        if line["event"] not in EVENTS:
            raise ValueError("unknown event")
        for key in ("t", "pid", "rank", "step"):
            if isinstance(line[key], bool) or not isinstance(line[key], int):
                raise ValueError(f"{key} is no integer")
        if not line["uid"] or not str(line["epoch"]):
            raise ValueError("uid or epoch is empty")
        return line
    except (ValueError, KeyError, TypeError) as error:
        raise WitnessError(f"line {number}: {error!r}: {text[:120]!r}") from None


def read_lines(stream):
    """Every line of the file; a last one without its newline is one that is still being written."""
    for number, text in enumerate(stream, 1):
        if not text.endswith("\n"):
            return
        yield parse_line(text, number)


def lives(lines):
    """The processes, by begin. A start line of a pid seen before is another process with that pid. Programs have small pids of their
    own in their namespaces, so where one runs is part of who it is."""
    open_lives, found = {}, []
    for line in lines:
        key = (line["uid"], line["rank"], str(line["epoch"]), line["pid"], str(line.get("target", "")), str(line.get("node", "")))
        life = open_lives.get(key)
        if line["event"] == "start" or life is None:
            life = Life(*key[:3], key[3], begin=line["t"], end=line["t"], first_step=line["step"])
            for name in ("name", "namespace", "target", "node", "gpus"):
                setattr(life, name, str(line.get(name, "")))
            life.started = line["event"] == "start"
            open_lives[key] = life
            found.append(life)
        if life.stopped:
            life.faults.append(f"{line['event']} after the stop line")
        # Lines of one process are in order, but its own clock read may precede another thread's write.
        life.longest_gap = max(life.longest_gap, line["t"] - life.end)
        life.begin, life.end = min(life.begin, line["t"]), max(life.end, line["t"])
        life.last_step = max(life.last_step, line["step"])
        life.beats += line["event"] == "heartbeat"
        if line["event"] == "resumed":
            life.resumed = life.first_step = line["step"]
        if line["event"] == "saving":
            life.saving = line["step"]
        if line["event"] == "saved":
            life.saved.append(line["step"])
            life.saving = -1
        if line["event"] == "stop":
            life.stopped, life.reason, life.exit = True, line.get("reason", ""), line.get("exit", -1)
    return sorted(found, key=lambda life: life.begin)


def overlaps(found):
    """Every pair of lives of one (uid, rank) that meet in more than one instant."""
    pairs, by_rank = [], {}
    for life in sorted(found, key=lambda life: (life.begin, life.end)):
        earlier = by_rank.setdefault((life.uid, life.rank), [])
        for other in earlier:
            same_instant = life.begin == other.begin
            if life.begin < other.end or same_instant:
                pairs.append(Overlap(life.uid, other, life))
        earlier.append(life)
    return pairs


def faults(found):
    """What is no overlap and yet no honest life."""
    said = []
    for life in found:
        said += [f"{fault}: {life}" for fault in life.faults]
        if not life.started:
            said.append(f"lines without a start line: {life}")
    return said


@dataclass
class Move:
    """From one process of a (uid, rank) to the next."""
    old: Life
    new: Life

    @property
    def pause(self):
        """Seconds from the end of the one to the begin of the other."""
        return (self.new.begin - self.old.end) / 1e9

    @property
    def lost(self):
        """Steps that were done and are done again."""
        return max(0, self.old.last_step - max(0, self.new.resumed))

    def __str__(self):
        return (f"{self.new.namespace}/{self.new.name} rank {self.new.rank}: {self.old.target} epoch {self.old.epoch} to "
                f"{self.new.target} epoch {self.new.epoch}, step {max(0, self.new.resumed)}, {self.lost} lost, "
                f"{self.pause:.2f} s between")


def moves(found):
    """Every pair of successive processes of one (uid, rank), by begin."""
    last, pairs = {}, []
    for life in found:
        key = (life.uid, life.rank)
        if key in last:
            pairs.append(Move(last[key], life))
        last[key] = life
    return pairs


def false_resumes(found):
    """Processes that went on from a step that no process before them had saved."""
    saved, said = {}, []
    for life in found:
        known = saved.setdefault((life.uid, life.rank), set())
        if life.resumed >= 0 and life.resumed not in known:
            said.append(f"resumed from step {life.resumed}, which nobody saved: {life}")
        known.update(life.saved)
        if not life.stopped:
            known.add(life.saving)
    return said


def read(path):
    with open(path, encoding="utf-8") as stream:
        return lives(read_lines(stream))


def summary(found):
    rows = [("WORKLOAD", "RANK", "EPOCH", "PID", "WHERE", "FROM s", "FOR s", "STEPS", "GAP ms", "END")]
    zero = min((life.begin for life in found), default=0)
    for life in found:
        end = f"{life.reason} ({life.exit})" if life.stopped else "killed or alive"
        rows.append((f"{life.namespace}/{life.name}", str(life.rank), life.epoch, str(life.pid),
                     f"{life.target}/{life.node}", f"{(life.begin - zero) / 1e9:.2f}",
                     f"{(life.end - life.begin) / 1e9:.2f}", f"{life.first_step}-{life.last_step}",
                     f"{life.longest_gap / 1e6:.0f}", end))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
                     for row in rows)


def main(argv=None):
    parser = argparse.ArgumentParser(description="Fail when a witness file shows anything running twice.")
    parser.add_argument("file")
    parser.add_argument("--quiet", action="store_true", help="print only what is wrong")
    options = parser.parse_args(argv)
    try:
        found = read(options.file)
    except (OSError, WitnessError, UnicodeDecodeError) as error:
        print(f"witness: {options.file}: {error}", file=sys.stderr)
        return 2
    wrong = overlaps(found)
    if not options.quiet:
        print(summary(found))
        uids = {life.uid for life in found}
        print(f"{len(found)} processes of {len(uids)} workloads, {len(wrong)} overlaps")
    for pair in wrong:
        print(f"OVERLAP: {pair}", file=sys.stderr)
    said = faults(found) + false_resumes(found)
    for fault in said:
        print(f"FAULT: {fault}", file=sys.stderr)
    return 1 if wrong or said else 0


if __name__ == "__main__":
    sys.exit(main())
