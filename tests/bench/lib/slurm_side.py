"""Slurm's side of a bench: tests/peers/lib/slurm in a folder, in a control group, asked by its own commands or over REST."""
import http.client
import json
import os
import re
import subprocess
import threading

from side import PEERS, Cpu, output, skip

# What makes it quickest for one job at a time, and for many (chosen by trying; its defaults are the third).
LATENCY = "batch_sched_delay=0,sched_interval=1,bf_interval=1"
THROUGHPUT = "batch_sched_delay=1,sched_min_interval=100000,bf_interval=5,default_queue_depth=2000,bf_max_job_test=2000"
DEFAULTS = "default_queue_depth=100"


class Slurm:
    def __init__(self, folder, scheduler, nodes=4, gpus=4, cpus=16, grace=20, rest=False):
        self.dir, self.cpu = folder, Cpu("slurm")
        settings = {"HANSE_SLURM_NODES": nodes, "HANSE_SLURM_GPUS": gpus, "HANSE_SLURM_CPUS": cpus, "HANSE_SLURM_GRACE": grace,
                    "HANSE_SLURM_SCHEDULER": scheduler, "HANSE_SLURM_REST": int(rest)}
        with self.cpu:
            up = subprocess.run([os.path.join(PEERS, "slurm", "up"), folder], env={**os.environ, **{k: str(v) for k, v in settings.items()}},
                                stderr=subprocess.PIPE, text=True, check=False)
        if up.returncode == 77:
            skip(up.stderr.strip())
        if up.returncode != 0:
            raise RuntimeError(up.stderr.strip())
        self.env = {**os.environ, "SLURM_CONF": os.path.join(folder, "east", "slurm.conf")}
        self.jobs = os.path.join(folder, "jobs")
        if rest:
            self.port = int(self.read("rest.port"))
            self.headers = {"X-SLURM-USER-NAME": "nobody", "X-SLURM-USER-TOKEN": self.read("token.user"), "Content-Type": "application/json"}
        self.local = threading.local()

    def read(self, name):
        with open(os.path.join(self.dir, "east", name), encoding="utf-8") as file:
            return file.read().strip()

    def run(self, *argv, text=None):
        """A command, counted as this side's."""
        with self.cpu:
            done = subprocess.run(argv, env=self.env, capture_output=True, text=True, check=False, input=text, cwd=self.jobs)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def sbatch(self, *words):
        return int(self.run("sbatch", "--parsable", "-o", "/dev/null", *words))

    def submit_rest(self, script, **job):
        """One job over REST, on this thread's own connection; slurmrestd closes it as it pleases."""
        body = json.dumps({"script": script, "job": {"partition": "gpu", "current_working_directory": "/tmp", "standard_output": "/dev/null",
                                                     "tasks": 1, "memory_per_node": 16, "environment": {"PATH": "/bin:/usr/bin"}, **job}})
        for _ in range(2):
            if getattr(self.local, "connection", None) is None:
                self.local.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            try:
                self.local.connection.request("POST", "/slurm/v0.0.38/job/submit", body, self.headers)
                answer = self.local.connection.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, ConnectionError):
                self.local.connection = None
        else:
            raise RuntimeError("slurmrestd closes its connections")
        if answer.will_close:
            self.local.connection.close()
            self.local.connection = None
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {text[:300]}")
        return json.loads(text)["job_id"]

    def completed(self):
        """Jobs that it has seen end well, by its own count."""
        return int(re.search(r"Jobs completed:\s*(\d+)", self.run("sdiag")).group(1))

    def reset(self):
        self.run("sdiag", "--reset")

    def state(self, job):
        found = re.search(r"JobState=(\w+)", self.run("scontrol", "-o", "show", "job", str(job)))
        return found and found.group(1)

    def cancel_all(self):
        self.run("scancel", "--user=root")

    def idle(self):
        return not self.run("squeue", "-h", "-o", "%i")

    def close(self):
        subprocess.run([os.path.join(PEERS, "slurm", "down"), self.dir, "--wipe"], check=False, stderr=subprocess.DEVNULL)
        self.cpu.close()


def version():
    return output("/usr/sbin/slurmctld", "-V")  # sbatch wants a cluster even for this
