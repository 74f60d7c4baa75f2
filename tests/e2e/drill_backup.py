#!/usr/bin/env python3
"""The hub comes back from a backup, then from one member of three, while work runs. What ran after the backup was taken is known to
targets only. Whether a training ran, where, and from which step, is told by its own witness file. Prints ok or FAILED per check."""
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from drill import Drill, MEMBERS, run, wait_for  # noqa: E402
import witness  # noqa: E402

CERTIFICATES = ("--cert", "member-{}.crt"), ("--key", "member-{}.key"), ("--ca", "ca.crt"), ("--key-ring", "key-ring")


class Hub(Drill):
    """Members that are started one by one: dev would begin a cluster anew with all of them."""

    def __init__(self, *args, **pool):
        super().__init__(*args, **pool)
        self.alone = {}

    def ports(self, number):
        with open(self.path("ports"), encoding="utf-8") as file:
            return file.read().splitlines()[number - 1].split()

    def start_member(self, number, data=None):
        api, peer = self.ports(number)
        argv = [self.hanse, "server", "--id", str(number), "--data", data or self.path(f"m{number}"),
                "--listen", "127.0.0.1:" + api, "--peer-listen", "127.0.0.1:" + peer]
        for flag, name in CERTIFICATES:
            argv += [flag, self.path("pki", name.format(number))]
        self.alone[number] = self._spawn(f"member-{number}", argv)
        return self.alone[number]

    def kill_members(self):
        for member in self.alone.values():
            member.kill()
            member.wait()
        self.alone = {}

    def stop(self):
        self.kill_members()
        super().stop()

    def tool(self, *args):
        """A command that asks no server."""
        return subprocess.run([self.hanse, *args], capture_output=True, text=True, timeout=60, check=False)

    def restore(self, file, data, *more):
        return self.tool("restore", file, "--data", data, "--id", "1", "--key-ring", self.path("pki", "key-ring"), *more)

    def all_back(self):
        wait_for("the member to lead", lambda: self.cli("status", check=False, timeout=40).returncode == 0, 30)
        wait_for("all targets to be connected again", lambda: self.connected() >= set(self.targets), 40)

    def join(self, number):
        """With an empty directory, as any new member."""
        shutil.rmtree(self.path(f"m{number}"), ignore_errors=True)
        self.start_member(number)
        self.cli("members", "add", str(number), "127.0.0.1:" + self.ports(number)[1])

        def said():
            with open(self.path("log", f"member-{number}.log"), encoding="utf-8", errors="replace") as log:
                return "event=member.empty" in (text := log.read()) and "hanse restore" in text

        wait_for("an empty directory to say what may be meant", said, 15)
        self.check("an empty directory says what may be meant", True)
        wait_for(f"member {number} to vote", lambda: self.cli("members", "promote", str(number), check=False).returncode == 0, 30)

    def left_behind(self, number, data):
        """An old member is started again, and stops by itself."""
        with open(self.path("log", f"member-{number}.log"), "ab") as log:
            begins = log.tell()
        ended = self.start_member(number, data).wait(timeout=30)
        del self.alone[number]
        with open(self.path("log", f"member-{number}.log"), "rb") as log:
            log.seek(begins)
            text = log.read().decode(errors="replace")
        self.check(f"old member {number} is refused, says why, and stops", ended != 0 and "began anew without it" in text, text[-300:] if not ended else "")

    def goes_on(self, name, lives, epoch):
        """It is Running as it was, and nobody has started it anew."""
        phase = wait_for(f"{name} to be told as it is", lambda: (x := self.status(name)).get("phase") in ("Running", "Succeeded") and x, 30)
        now = self.lives(name)
        self.check(f"{name} goes on where it is", len(now) == lives and (phase["phase"] == "Succeeded" or phase.get("epoch") == epoch),
                   f"{phase['phase']}, epoch {phase.get('epoch')}, {len(now)} lives")

    def recover(self):
        """Once more while a run is left as it is: what holds its place by the state may not have been told as ended yet."""
        tried = []

        def once():
            tried.append(self.cli("recover", "--from-targets", check=False, timeout=60))
            return "left as it is" not in tried[-1].stderr

        wait_for("everything to be taken over", once, 30, every=1)
        done = tried[-1]
        self.check("recovery is settled", done.returncode == 0 and "settled" in done.stdout, done.stdout + done.stderr)
        return done.stdout


def refused(p, what, done, status, *words):
    p.check(what, done.returncode == status and all(w in done.stderr for w in words), f"exit {done.returncode}: {done.stderr.strip()}")


def changed(p, data, name):
    path = p.path("scratch", name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def with_about(data, **fields):
    """The same backup, saying something else of itself, with a digest that fits."""
    n = struct.unpack_from("<I", data, 20)[0]
    about = json.dumps({**json.loads(data[24:24 + n]), **fields}).encode()
    body = data[:20] + struct.pack("<I", len(about)) + about + data[24 + n:-40]
    return body + data[-40:-32] + hashlib.sha256(body).digest()


def bad_files(p, file):
    with open(file, "rb") as opened:
        good = opened.read()
    new = p.path("never")
    p.check("a backup is for its owner only", os.stat(file).st_mode & 0o777 == 0o600)
    p.check("no Secret lies in it in clear", b"very-secret-word" not in good and b"dmVyeS1zZWNyZXQtd29yZA" not in good)
    for what, data, status, word in (
            ("one that was cut off is refused", good[:-1], 1, "not whole"),
            ("one that was cut off between two parts is refused", good[:24 + struct.unpack_from("<I", good, 20)[0]], 1, "not whole"),
            ("an empty one is refused", b"", 1, "not whole"),
            ("another file is refused", b"#!/bin/sh\necho no backup at all\n", 1, "something else"),
            ("one with a byte changed is refused", good[:len(good) // 2] + bytes([good[len(good) // 2] ^ 1]) + good[len(good) // 2 + 1:], 1, "changed or damaged"),
            ("one with something behind it is refused", good + b"x", 1, "follows its end"),
            ("one of a newer format is refused", good[:8] + b"\x09" + good[9:], 1, "a newer version of hanse is needed"),
            ("one of a newer feature level is refused", with_about(good, featureLevel=99), 1, "a newer version of hanse is needed"),
            ("one that says what it is not is refused", with_about(good, digest="0123456789abcdef"), 1, "is not the one that it says")):
        refused(p, what, p.restore(changed(p, data, "bad.hsb"), new), status, word)
        p.check("and nothing is left of the try", not os.path.exists(new) or not os.listdir(new))
    refused(p, "a directory that holds something is left alone", p.restore(file, p.path("pki")), 5, "is not empty")
    refused(p, "keys are asked for", p.tool("restore", file, "--data", new, "--id", "1"), 2, "--key-ring")
    with open(p.path("scratch", "other-ring"), "w", encoding="utf-8", opener=lambda n, f: os.open(n, f, 0o600)) as ring:
        ring.write("other " + "ab" * 32 + "\n")
    refused(p, "keys that open no Secret are refused", p.tool(
        "restore", file, "--data", new, "--id", "1", "--key-ring", p.path("scratch", "other-ring")), 3, "the key ring", "Secret default/word")
    refused(p, "the data of a member that runs is left alone", p.tool("backup", "--data", p.path("m1"), "-o", new), 7, "is locked by process")
    refused(p, "also by the other way", p.tool("server", "recover-quorum", "--data", p.path("m1"), "--yes"), 7, "is locked by process")
    refused(p, "an epoch of 0 is refused", p.tool("run", "--epoch", "0", "--", "true"), 2, "epochs count from 1")
    refused(p, "a folder that is no data directory is told", p.tool("server", "recover-quorum", "--data", p.path("pki")), 3, "no data directory")


def small_disk(p, file):
    disk = p.path("scratch", "small")
    os.makedirs(disk)
    done = subprocess.run(["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=1m none "$0" || exit 77; "$@"; s=$?; ls -A "$0"; exit $s', disk,
                           p.hanse, "restore", file, "--data", os.path.join(disk, "new"), "--id", "1", "--no-key-ring"],
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        print("  skipped: a small tmpfs cannot be mounted here", flush=True)
        return
    refused(p, "a disk that is full is told, with what is needed", done, 7, "is full", "MiB are needed")
    p.check("and nothing is left of the try", not done.stdout, done.stdout)


def from_a_backup(p):
    """All members are lost; the backup is older than what runs."""
    file = p.path("scratch", "hub.hsb")
    p.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "word", "namespace": "default"},
             "stringData": {"a": "very-secret-word"}})
    for name, steps in (("rides", 5000), ("moves", 5000), ("ends", 400), ("gone", 5000)):
        p.train(name, steps)
    for name in ("rides", "moves", "ends", "gone"):
        p.saved(name)
    p.cli("cordon", *p.targets[:1])
    p.cli("cordon", *p.targets[1:])
    p.train("later", 5000)
    wait_for("it to wait", lambda: p.status("later").get("phase") in ("Queued", "Pending"), 20)
    taken = p.cli("backup", "-o", file)
    was = p.cluster()
    p.check("a backup is taken while work runs", was in taken.stdout and re.search(r"\d+ bytes", taken.stdout), taken.stdout + taken.stderr)
    for name in p.targets:
        p.cli("uncordon", name)
    p.cli("delete", "workload", "gone")
    p.cli("migrate", "moves", "--to", "right", "--wait", timeout=60)
    p.running("later")
    p.train("since", 5000)
    p.running("since")
    p.ended("ends")
    wait_for("the deleted one to be gone", lambda: "gone" not in p.workloads() and p.lives("gone")[-1].stopped, 30)
    bad_files(p, file)
    small_disk(p, file)

    old = p.path("scratch", "old-m2")
    p.lose_hub("m1", "m3")
    os.rename(p.path("m2"), old)
    done = p.restore(file, p.path("m1"))
    p.check("it is restored, and the next steps are told", done.returncode == 0 and "recover --from-targets" in done.stdout and
            "members add" in done.stdout, done.stdout + done.stderr)
    p.start_member(1)
    p.all_back()
    now = p.cluster()
    p.check("it is the same line, in a log of its own", now.startswith(was + ".") and now.count(".") == 2, now)
    before = {name: p.lives(name) for name in ("rides", "moves", "later", "since")}
    found = {o["workload"]: o for o in p.all_listed()["items"]}
    p.check("what began since is listed", {"moves", "later", "since"} <= set(found), str(sorted(found)))
    p.stays_quiet(before)
    p.left_behind(2, old)
    p.recover()
    wait_for("nothing to be left over", lambda: not p.orphans()["items"], 20)
    p.goes_on("rides", 1, 1)
    p.goes_on("moves", 2, 2)
    p.goes_on("later", 1, 1)
    p.goes_on("since", 1, 1)
    p.check("what had ended since is told as it ended", p.ended("ends")["phase"] == "Succeeded" and len(p.lives("ends")) == 1)
    p.check("a Secret is as it was", "word" in p.cli("get", "secrets").stdout)
    for name in p.targets:  # the backup has them as they were
        p.cli("uncordon", name)
    for number in (2, 3):
        p.join(number)
    p.check("members join as ever", json.loads(p.cli("status", "-o", "json").stdout)["voters"] == 3)
    p.check("a deletion since the backup is undone, and never two at once",
            "gone" in p.workloads() and not witness.overlaps(p.lives("gone")), str(p.status("gone").get("phase")))
    if "gone" in p.workloads():
        p.cli("delete", "workload", "gone")


def from_one_member(p):
    """Two of three are lost while work runs."""
    for name in ("rides", "moves", "later", "since"):
        p.goes_on(name, len(p.lives(name)), p.status(name).get("epoch"))
    was, before = p.cluster(), {name: p.lives(name) for name in ("rides", "moves", "later", "since")}
    p.train("stays", 3000)
    p.running("stays")
    before["stays"] = p.lives("stays")
    p.kill_members()
    old = p.path("scratch", "old-m3")
    shutil.rmtree(p.path("m2"))
    os.rename(p.path("m3"), old)
    asked = p.tool("server", "recover-quorum", "--data", p.path("m1"))
    p.check("without --yes it says what it found", asked.returncode == 2 and was in asked.stdout and "member 2" in asked.stdout and
            "--yes" in asked.stderr, asked.stdout + asked.stderr)
    done = p.tool("server", "recover-quorum", "--data", p.path("m1"), "--yes")
    kept = [n for n in os.listdir(p.path("m1")) if n.startswith("before-")]
    p.check("one member goes on alone, what it held is kept", done.returncode == 0 and len(kept) == 1 and
            os.path.exists(p.path("m1", kept[0], "meta.json")) and os.listdir(p.path("m1", kept[0], "log")), done.stdout + done.stderr)
    p.start_member(1)
    p.all_back()
    p.check("the line goes on", p.cluster() != was and p.cluster().split(".")[0] == was.split(".")[0], p.cluster())
    p.all_listed()
    p.left_behind(3, old)
    p.stays_quiet(before)
    p.recover()
    for name in before:
        p.goes_on(name, len(before[name]), p.status(name).get("epoch"))
    p.join(2)
    p.join(3)
    p.train("after", 200)
    p.holds("after", [1])
    p.check("members join as ever", json.loads(p.cli("status", "-o", "json").stdout)["voters"] == 3)
    stopped = p.path("scratch", "stopped.hsb")
    p.alone[3].terminate()
    p.alone.pop(3).wait()
    offline = p.tool("backup", "--data", p.path("m3"), "-o", stopped, "--json")
    p.check("a stopped member's directory can be backed up, too", offline.returncode == 0 and
            json.loads(offline.stdout)["cluster"] == p.cluster(), offline.stderr)
    for name, epochs in (("rides", [1]), ("later", [1]), ("since", [1]), ("stays", [1]), ("moves", [1, 2])):
        p.ended(name, 240)  # of a busy machine
        p.holds(name, epochs)


if __name__ == "__main__":
    sys.exit(run((from_a_backup, from_one_member), kind=Hub, members=3))
