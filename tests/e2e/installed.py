#!/usr/bin/env python3
"""hanse-run install, as an init container runs it, and hanse-run --installed, as the main container does: in an image that has nothing, whose
root is read-only, as another user. The program runs, finds `hanse`, and nothing of what was for its runner. Exit 1 when any check failed."""
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
if not os.environ.get("HANSE_RUN"):
    print("SKIPPED: hanse-run was not built (HANSE_STATIC_RUNNER)")
    sys.exit(77)
import image as images  # noqa: E402

PATIENCE = 60
ANOTHER = 12345
UID = "11111111-2222-4333-8444-555555555555"
failed = 0


def check(good, what):
    global failed
    failed += not good
    print(f"{'ok' if good else 'FAILED'}: {what}", flush=True)


class Pod:
    """Its folders, of which the containers see those that they mount."""

    def __init__(self, top, image):
        self.top, self.image = top, image
        for name in ("secret", "hanse"):
            os.makedirs(self.path(name))
            os.makedirs(image.path("." + name), exist_ok=True)
        os.chmod(self.path("hanse"), 0o777)
        open(image.path("dev/termination-log"), "w", encoding="ascii").close()
        self.message = self.path("message")
        open(self.message, "w", encoding="ascii").close()
        os.chmod(self.message, 0o666)
        self.write("ca", "no certificate\n")
        self.write("proxy", "user:word")
        self.write("script", "#!/bin/sh\n")
        for rank in range(3):
            self.write(f"token-{rank}", self.token(rank) + "\n")

    def path(self, *names):
        return os.path.join(self.top, *names)

    def write(self, name, text):
        with open(self.path("secret", name), "w", encoding="ascii") as f:
            f.write(text)

    def token(self, rank):
        return f"hanse-run-1/c0ffee/{UID}.1.1/{rank}/3/1764295200000/{rank:064x}"

    def run(self, *argv, secret=False, user=None, **env):
        root = self.image.root
        mounts = [f"mount --bind {root} {root}", f"cd {root}", "mount --bind /dev/null dev/null", "mount --rbind /proc proc",
                  f"mount --bind {self.path('hanse')} .hanse", f"mount --bind {self.message} dev/termination-log"]
        if secret:
            mounts += [f"mount --bind {self.path('secret')} .secret", "mount -o remount,bind,ro .secret"]
        mounts += [f"mount -o remount,bind,ro {root}"]
        who = f"--userspec={user}:{user}" if user else ""
        line = f'PATH="$PATH:/usr/sbin:/sbin"; {" && ".join(mounts)} && exec chroot {who} . "$@"'
        done = subprocess.run([*images.namespaces(), "sh", "-c", line, "pod", *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE, check=False, env={"PATH": os.environ["PATH"], **env})
        return done.returncode, done.stdout + done.stderr

    def install(self, **env):
        return self.run("/hanse-run", "install", "--from", "/.secret", "--to", "/.hanse", secret=True, **env)

    def main(self, *options, user=None):
        return self.run("/.hanse/bin/hanse-run", "--installed", "/.hanse", "--report", "termination-message", *options, "--", "/program", user=user)

    def said(self):
        with open(self.message, encoding="utf-8") as f:
            return json.loads(f.readline())


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def installs(pod):
    for again in ("", ", again"):
        code, out = pod.install(JOB_COMPLETION_INDEX="2")
        check(code == 0 and not out, f"install{again}: exit {code} {out}")
    with open(pod.path("hanse/key/token"), encoding="ascii") as f:
        check(f.read().strip() == pod.token(2), "the token of its own rank, and no other")
    check(sorted(os.listdir(pod.path("hanse/key"))) == ["ca", "proxy", "token"], "what its runner is told")
    check(sorted(os.listdir(pod.path("hanse/bin"))) == ["hanse", "hanse-run", "script"], "what it runs")
    check(mode(pod.path("hanse/bin")) == 0o755 and mode(pod.path("hanse/bin/hanse-run")) == 0o555, "which another user cannot change")


def refuses(pod):
    code, out = pod.install(JOB_COMPLETION_INDEX="3")
    check(code == 1 and "token-3" in out, f"a rank without a token: {code} {out.strip()}")
    code, out = pod.install(JOB_COMPLETION_INDEX="x")
    check(code == 2 and "no rank" in out, f"no rank: {code}")
    pod.write("token-1", pod.token(0))
    code, out = pod.install(JOB_COMPLETION_INDEX="1")
    check(code == 1 and "is of rank 0" in out, f"a token of another rank: {code} {out.strip()}")
    pod.write("token-1", pod.token(1))


def runs(pod, user):
    code, out = pod.main(user=user)
    lines = out.splitlines()
    check(code == 7, f"its program runs: exit {code}\n{out}")
    check("HANSE_RANK=2" in lines and "HANSE_WORLD_SIZE=3" in lines and "TMPDIR=(none)" in lines, "with the names of its rank, and its own TMPDIR")
    check(f"user {user or 0}" in lines and "root read-only" in lines, f"as user {user or 0}, on a read-only root")
    check(not [x for x in lines if x.startswith("left ")], "nothing is left that was for its runner")
    check("hanse 0" in lines, "and it finds hanse")
    said = pod.said()
    check(said["state"] == "ended" and said["exitCode"] == 7 and "/2/3/" in said["of"], f"the termination message: {said}")
    check(not os.listdir(pod.path("hanse/tmp")), "what the runner made is gone")
    code, out = pod.main(user=user)
    check(code != 0 and "HANSE_RANK" not in out, f"it begins no second time: exit {code} {out.strip()[:100]}")


def never_beside_its_token(pod, user):
    pod.install(JOB_COMPLETION_INDEX="0")
    os.chmod(pod.path("hanse/key"), 0o755)
    code, out = pod.main(user=user)
    check(code == 126 and "HANSE_RANK" not in out, f"a token that cannot be removed: exit {code} {out.strip()[:140]}")


def takes_all_where_it_calls(pod, user):
    pod.install(JOB_COMPLETION_INDEX="0")
    code, out = pod.main("--home", "127.0.0.1:1", "--home-proxy", "http://127.0.0.1:1", "--home-wait", "300", user=user)
    check(code == 126 and "HANSE_RANK" not in out, f"a hub that is not there: exit {code} {out.strip()[-160:]}")
    check(not os.listdir(pod.path("hanse/key")), f"no key stays: {os.listdir(pod.path('hanse/key'))}")
    check(pod.said().get("neverStarted") is True, f"and it tells that nothing started: {pod.said()}")


def image_is_as_its_dockerfile_says(top):
    """deploy/kubernetes/runner-image makes what runner.Dockerfile would: one file, and the entry."""
    folder, archive = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "deploy", "kubernetes"), os.path.join(top, "image.tar")
    subprocess.run([os.path.join(folder, "runner-image"), images.BINARY, archive, "hanse-run:test"], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "runner.Dockerfile"), encoding="ascii") as f:
        said = [line.split(maxsplit=1) for line in f if line.strip() and line[0] != "#"]
    with tarfile.open(archive) as tar:
        manifest = json.load(tar.extractfile("manifest.json"))[0]
        config = json.load(tar.extractfile(manifest["Config"]))
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][0])) as layer:
            inside = [(m.name, m.mode, layer.extractfile(m).read()) for m in layer]
    with open(images.BINARY, "rb") as f:
        binary = f.read()
    check(inside == [("hanse-run", 0o755, binary)] and manifest["RepoTags"] == ["hanse-run:test"], "its image has hanse-run alone")
    check([word for word, _ in said] == ["FROM", "COPY", "ENTRYPOINT"] and said[0][1].split() == ["scratch"] and
          said[1][1].split() == ["hanse-run", "/hanse-run"] and json.loads(said[2][1]) == config["config"]["Entrypoint"], "as runner.Dockerfile says")


def main():
    top = tempfile.mkdtemp(prefix="hanse-installed-")
    os.chmod(top, 0o755)
    try:
        image = images.Image(os.path.join(top, "image"))
        image.compile("looker.c", "cc", "-static")
        pod = Pod(os.path.join(top, "pod"), image)
        user = ANOTHER if os.getuid() == 0 else None
        images_command = images.namespaces()
        if "-Urm" in images_command and user:
            user = ANOTHER if subprocess.run(["unshare", "-m", "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0 else None
            images.namespaces = (lambda: ["unshare", "-m"]) if user else images.namespaces
        installs(pod)
        refuses(pod)
        pod.install(JOB_COMPLETION_INDEX="2")
        runs(pod, user)
        if user:
            never_beside_its_token(pod, user)
        takes_all_where_it_calls(pod, user)
        image_is_as_its_dockerfile_says(top)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
