#!/usr/bin/env python3
"""Checkpoints in a real S3 peer: moto, with its own check of signatures and of permissions switched on, and boto3 as the eye of
another client. The same moves as in tests/e2e/migrate_s3.py, and what only a second opinion can say: keys, checksums, parts, a
key that may not. Exit 77 when moto is not there and cannot be fetched. Prints ok or FAILED per check; exit 1 when any failed."""
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VERSION = "5.2.5"
VENV = os.path.join(os.environ.get("HANSE_CACHE") or os.path.join(TOP, ".cache"), "moto-" + VERSION)
sys.path.insert(0, os.path.join(TOP, "tests", "e2e"))
sys.dont_write_bytecode = True


def skip(why):
    print(f"moto {VERSION} cannot be used: {why}")
    sys.exit(77)


def enter():
    """Becomes the Python of the cached environment, made once."""
    python = os.path.join(VENV, "bin", "python")
    if not os.path.exists(os.path.join(VENV, "whole")):
        shutil.rmtree(VENV, ignore_errors=True)
        for argv in ([sys.executable, "-m", "venv", VENV],
                     [python, "-m", "pip", "install", "-q", f"moto[server,s3,iam]=={VERSION}", "boto3"]):
            try:
                done = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                skip(error)
            if done.returncode != 0:
                skip(((done.stderr or done.stdout).strip().splitlines() or ["?"])[-1] + " (is there a network?)")
        with open(os.path.join(VENV, "whole"), "w", encoding="utf-8"):
            pass
    if os.path.realpath(sys.prefix) != os.path.realpath(VENV):
        os.execv(python, [python, *sys.argv])


class Wire(threading.Thread):
    """Bytes between a port of its own and another; it can be cut."""

    def __init__(self, to):
        super().__init__(daemon=True)
        self.to, self.port, self.open, self.listener = to, 0, set(), None
        self.back()

    def back(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def away(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in list(self.open):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            for a, b in ((near, far), (far, near)):
                self.open.add(a)
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    def _copy(self, a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.open.discard(a)
        a.close()


class Moto:
    """As tests/support/s3/server.py's Server, as far as the moves need it."""

    def __init__(self, bucket):
        import boto3
        import botocore.config
        self.bucket = bucket
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        self.process = subprocess.Popen([os.path.join(VENV, "bin", "moto_server"), "-H", "127.0.0.1", "-p", str(port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # pylint: disable=consider-using-with
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
        self.direct = f"http://127.0.0.1:{port}"

        def client(service, key="any", secret="any"):
            return boto3.client(service, endpoint_url=self.direct, region_name="us-east-1", aws_access_key_id=key,
                                aws_secret_access_key=secret,
                                config=botocore.config.Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}))
        iam = client("iam")
        self.id, self.secret = self.user(iam, "tester", ["s3:*"])
        self.reader = self.user(iam, "reader", ["s3:GetObject", "s3:ListBucket"])
        self.client = client("s3", self.id, self.secret)
        self.client.create_bucket(Bucket=bucket)
        done = subprocess.run(["curl", "-sf", "-X", "POST", "-H", "Content-Type: text/plain", "--data-binary", "0",
                               self.direct + "/moto-api/reset-auth"], stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise RuntimeError("moto does not check signatures")
        self.wire = Wire(port)
        self.away, self.back = self.wire.away, self.wire.back

    @staticmethod
    def user(iam, name, actions):
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=json.dumps(
            {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]}))
        made = iam.create_access_key(UserName=name)["AccessKey"]
        return made["AccessKeyId"], made["SecretAccessKey"]

    def environment(self, key=None):
        key_id, secret = key or (self.id, self.secret)
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.wire.port}", "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": key_id, "AWS_SECRET_ACCESS_KEY": secret}

    def keys(self, prefix=""):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [o["Key"] for p in pages for o in p.get("Contents", [])]

    def read(self, key):
        return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


PROGRAM = r'''
from=0; [ -z "$HANSE_RESUME_DIR" ] || { from=$(cat "$HANSE_RESUME_DIR/state a+b%é"); echo "resumed $from"; }
env | grep -c HANSE_STORE_ && exit 9
for step in $(seq $((from + 1)) $((from + STEPS))); do
    mkdir -p "$HANSE_CHECKPOINT_DIR/sub"
    echo $step > "$HANSE_CHECKPOINT_DIR/state a+b%é.new"
    mv "$HANSE_CHECKPOINT_DIR/state a+b%é.new" "$HANSE_CHECKPOINT_DIR/state a+b%é"
    [ -z "$LARGE" ] || { head -c "$LARGE" /dev/zero | tr '\0' "$step" > "$HANSE_CHECKPOINT_DIR/large.new"
                         mv "$HANSE_CHECKPOINT_DIR/large.new" "$HANSE_CHECKPOINT_DIR/large"; }
    "$HANSE" checkpoint commit --step $step "state a+b%é" ${LARGE:+large} || exit 8
    [ -z "$PAUSE" ] || sleep "$PAUSE"
done
'''


class Alone:
    """`hanse run` without an agent, in a folder of its own."""

    def __init__(self, hanse, moto):
        self.hanse, self.moto, self.failed = hanse, moto, 0
        self.dir = tempfile.mkdtemp(prefix="hanse-s3-")
        self.base = f"s3://{moto.bucket}/jobs of/alone+é"

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail else ""), flush=True)

    def command(self, *words, key=None, begin=False, **env):
        argv = [self.hanse, *words]
        env = {**os.environ, **self.moto.environment(key), "TMPDIR": self.dir, "HANSE": self.hanse, **env}
        if begin:
            return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)

    def train(self, epoch, steps, *words, base=None, machine="one", **env):
        """A scratch folder is of one job on one machine."""
        base = base or self.base
        scratch = os.path.join(self.dir, machine + "-" + hashlib.sha256(base.encode()).hexdigest()[:8])
        return self.command("run", "--checkpoint-dir", base, "--checkpoint-scratch", scratch,
                            "--epoch", str(epoch), *words, "--", "/bin/sh", "-c", PROGRAM, STEPS=str(steps), **env)

    def newest(self, epoch, base=None):
        prefix = (base or self.base)[len(f"s3://{self.moto.bucket}/"):]
        cuts = [k for k in self.moto.keys(f"{prefix}/sealed/e{epoch}/cut-")]
        return max(cuts, key=lambda k: int(k.rsplit("-", 1)[1].split(".")[0]), default="")


def seen_by_another_client(a):
    done = a.train(1, 3)
    a.check("it runs", done.returncode == 0, done.stderr.strip()[-300:])
    cut = a.newest(1)
    prefix = os.path.dirname(cut)
    text = json.loads(a.moto.read(cut))
    rank = text["ranks"][0]
    manifest = a.moto.read(f"{prefix}/0/s{rank['step']}/manifest.json")
    a.check("the cut names the manifest by its digest", rank["manifest"] == "sha256:" + hashlib.sha256(manifest).hexdigest(), str(text))
    for f in json.loads(manifest)["files"]:
        key = f"{prefix}/0/s{rank['step']}/{f['name']}"
        a.check(f"{f['name']} is what the manifest says", hashlib.sha256(a.moto.read(key)).hexdigest() == f["sha256"])
        head = a.moto.client.head_object(Bucket=a.moto.bucket, Key=key, ChecksumMode="ENABLED")
        a.check("and has its checksum with it", bool(head.get("ChecksumSHA256")), str(head.get("ChecksumSHA256")))


def resumed_on_another_machine(a):
    cut = f"s3://{a.moto.bucket}/{a.newest(1)}"
    done = a.train(2, 2, "--resume", cut, machine="two")
    a.check("it goes on from step 3", done.returncode == 0 and "resumed 3" in done.stdout, (done.stdout + done.stderr).strip()[-300:])
    done = a.command("checkpoint", "verify", f"s3://{a.moto.bucket}/{a.newest(2)}")
    a.check("verify", done.returncode == 0 and "whole: step 5" in done.stdout, (done.stdout + done.stderr).strip())


def spoilt_by_another_client(a):
    cut = a.newest(2)
    state = next(k for k in a.moto.keys(os.path.dirname(cut)) if "/s5/state" in k)
    was, url = a.moto.read(state), f"s3://{a.moto.bucket}/{cut}"
    for what, spoil, reason in (
            ("altered", lambda: a.moto.client.put_object(Bucket=a.moto.bucket, Key=state, Body=b"6\n"), "CheckpointAltered"),
            ("torn", lambda: a.moto.client.put_object(Bucket=a.moto.bucket, Key=state, Body=b"5"), "CheckpointTorn"),
            ("removed", lambda: a.moto.client.delete_object(Bucket=a.moto.bucket, Key=state), "CheckpointTorn")):
        spoil()
        done = a.command("checkpoint", "verify", url)
        a.check(f"{what}: {reason}", done.returncode == 5 and reason in done.stderr, done.stderr.strip())
        done = a.train(9, 1, "--resume", url, machine="nine-" + what)
        a.check("and it is not started from that", done.returncode == 126, f"{done.returncode} {done.stderr.strip()[-200:]}")
    a.moto.client.put_object(Bucket=a.moto.bucket, Key=state, Body=was)
    done = a.command("checkpoint", "verify", url.replace("cut-", "cut-9"))
    a.check("a cut that is not there: CheckpointMissing", done.returncode == 5 and "CheckpointMissing" in done.stderr, done.stderr.strip())
    a.check("put back, it is whole", a.command("checkpoint", "verify", url).returncode == 0)


def keys_that_may_not(a):
    cut = f"s3://{a.moto.bucket}/{a.newest(1)}"
    for what, key, words in (("a wrong secret", (a.moto.id, "hush" * 10), ("checkpoint", "verify", cut)),
                             ("an unknown key", ("AKIANOBODY0000000000", "hush" * 10), ("checkpoint", "verify", cut)),
                             ("a key that may only read", a.moto.reader,
                              ("run", "--checkpoint-dir", a.base + "/x", "--", "/bin/true"))):
        done = a.command(*words, key=key)
        said = done.stdout + done.stderr
        a.check(f"{what}: StoreUnreachable, and no verdict", done.returncode not in (0, 5) and "StoreUnreachable" in said and
                "Checkpoint" not in said.replace("checkpoint", "").replace("CheckpointDir", ""), said.strip()[-300:])
        a.check("and the secret is not said", key[1] not in said)
    done = a.command("checkpoint", "verify", cut.replace(a.moto.bucket, "no-such-bucket"))
    a.check("a bucket that is not there", done.returncode not in (0, 5) and "no such bucket" in done.stderr, done.stderr.strip())
    a.check("a key that may only read can be resumed from", a.command("checkpoint", "verify", cut, key=a.moto.reader).returncode == 0)


def large_files(a):
    base = f"s3://{a.moto.bucket}/large"
    done = a.train(1, 1, base=base, LARGE=str(70 << 20))
    a.check("it runs", done.returncode == 0, done.stderr.strip()[-300:])
    key = next(k for k in a.moto.keys("large/sealed") if k.endswith("/large"))
    head = a.moto.client.head_object(Bucket=a.moto.bucket, Key=key)
    a.check("70 MiB went in two parts", head["ContentLength"] == 70 << 20 and head["ETag"].strip('"').endswith("-2"), head["ETag"])
    a.check("no upload is left begun", not a.moto.client.list_multipart_uploads(Bucket=a.moto.bucket).get("Uploads"))
    done = a.command("checkpoint", "verify", f"s3://{a.moto.bucket}/{a.newest(1, base)}")
    a.check("and come back whole", done.returncode == 0, done.stderr.strip())


def the_server_goes_away_and_comes_back(a):
    base = f"s3://{a.moto.bucket}/away"
    job = a.train(1, 40, base=base, machine="away", begin=True, PAUSE="0.2")
    deadline = time.monotonic() + 30
    while not a.newest(1, base) and time.monotonic() < deadline:
        time.sleep(0.1)
    a.moto.away()
    time.sleep(2)
    a.moto.back()
    out, err = job.communicate(timeout=120)
    a.check("the run ends well", job.returncode == 0, (out + err)[-300:])
    text = json.loads(a.moto.read(a.newest(1, base)))
    a.check("with its last step in the store", text["step"] == 40, str(text["step"]))


def main():
    hanse = os.environ.get("HANSE", "")
    if not os.access(hanse, os.X_OK):
        print("there is no hanse: set HANSE")
        return 77
    enter()
    import migrate_s3
    from moves import run
    moto = Moto("checkpoints")
    a = Alone(hanse, moto)

    class Peer(migrate_s3.Sites):
        def begin_store(self):
            return moto
    try:
        for part in (seen_by_another_client, resumed_on_another_machine, spoilt_by_another_client, keys_that_may_not, large_files,
                     the_server_goes_away_and_comes_back):
            print(part.__name__.replace("_", " "), flush=True)
            part(a)
        moved = run((migrate_s3.moved_with_its_own_keys, migrate_s3.moved_with_the_keys_of_the_agents,
                     migrate_s3.the_store_goes_away_and_comes_back), kind=Peer)
    finally:
        moto.stop()
        shutil.rmtree(a.dir, ignore_errors=True)
    print(f"{a.failed} failed alone")
    return 1 if a.failed or moved else 0


if __name__ == "__main__":
    sys.exit(main())
