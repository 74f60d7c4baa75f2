"""Two systems side by side: what every bench against a peer needs. CPU seconds of a side with all that it started, the machine's
load and versions, and rows of results whose ratio is told with its spread over the rounds. Standard library only."""
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
PEERS = os.path.join(TOP, "tests", "peers", "lib")
sys.path.insert(0, os.path.join(TOP, "tests", "e2e", "lib"))
sys.dont_write_bytecode = True


def skip(text):
    print(text, file=sys.stderr)
    sys.exit(77)


def say(text):
    print(text, file=sys.stderr, flush=True)


def hanse_binary():
    path = os.path.realpath(os.environ.get("HANSE") or os.path.join(TOP, "build", "release", "hanse"))
    if not os.access(path, os.X_OK):
        skip(f"{path} is missing: cmake --workflow --preset build")
    return path


def load1():
    return round(os.getloadavg()[0], 1)


def output(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def hanse_version(hanse):
    return output(hanse, "version", "--client").splitlines()[0] if output(hanse, "version", "--client") else output(hanse, "version")


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((x.split(":")[1].strip() for x in file if x.startswith("model name")), platform.machine())
    return {"cpus": os.cpu_count(), "model": model, "kernel": platform.release()}


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def until(what, look, seconds, every=0.002):
    """The first value of look() that is neither None nor False."""
    end = time.monotonic() + seconds
    while True:
        value = look()
        if value is not None and value is not False:
            return value
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds} s in vain for {what}")
        time.sleep(every)


class Cpu:
    """CPU seconds of everything that is started `with` it, ended or not: a control group, of either version. Without the right
    to make one, every figure is None."""

    made = 0

    def __init__(self, name):
        self.dir = self.home = None
        Cpu.made += 1
        name = f"hanse-bench-{os.getpid()}-{Cpu.made}-{name}"
        for root, procs in (("/sys/fs/cgroup", "cgroup.procs"), ("/sys/fs/cgroup/cpuacct", "tasks")):
            if not os.path.exists(os.path.join(root, procs)):
                continue
            try:
                os.mkdir(os.path.join(root, name))
            except OSError:
                continue
            self.dir, self.procs = os.path.join(root, name), procs
            self.home = os.path.join(root, self._here(root, procs), procs)

    @staticmethod
    def _here(root, procs):
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            for line in file:
                number, kinds, path = line.rstrip("\n").split(":", 2)
                if (procs == "tasks" and "cpuacct" in kinds.split(",")) or (procs != "tasks" and number == "0"):
                    return path.lstrip("/")
        return ""

    def __enter__(self):  # what this thread starts is born into it
        if self.dir:
            with open(os.path.join(self.dir, self.procs), "w", encoding="utf-8") as file:
                file.write("0")
        return self

    def __exit__(self, *_):
        if self.dir:
            with open(self.home, "w", encoding="utf-8") as file:
                file.write("0")

    def seconds(self):
        if not self.dir:
            return None
        usage = os.path.join(self.dir, "cpuacct.usage")
        if os.path.exists(usage):
            with open(usage, encoding="utf-8") as file:
                return int(file.read()) / 1e9
        with open(os.path.join(self.dir, "cpu.stat"), encoding="utf-8") as file:
            return next(int(x.split()[1]) / 1e6 for x in file if x.startswith("usage_usec"))

    def rss_mib(self):
        """Proportional set size of all that lives in it."""
        if not self.dir:
            return None
        total = 0
        with open(os.path.join(self.dir, "cgroup.procs"), encoding="utf-8") as file:
            for pid in file.read().split():
                try:
                    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as rollup:
                        total += next(int(x.split()[1]) for x in rollup if x.startswith("Pss:"))
                except (OSError, StopIteration):
                    pass
        return round(total / 1024, 1)

    def close(self):
        try:
            if self.dir:
                os.rmdir(self.dir)
        except OSError:
            pass


class Rounds:
    """One comparison: the sides take turns, A B A B. Smaller figures are better unless `more` is said; the ratio is above 1
    where Hanse does better."""

    def __init__(self, name, unit, peer, more=False):
        self.name, self.unit, self.peer, self.more = name, unit, peer, more
        self.ours, self.theirs = [], []

    def ratio(self, ours, theirs):
        return (ours / theirs if self.more else theirs / ours) if ours and theirs else None

    def row(self, **more):
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        ratios = [r for r in (self.ratio(a, b) for a, b in zip(self.ours, self.theirs)) if r is not None]
        ratio = self.ratio(ours, theirs)
        return {"name": self.name, "value": digits(ours), "unit": self.unit, "peer": self.peer, "peer_value": digits(theirs),
                "ratio": ratio and digits(ratio), "ratio_min": digits(min(ratios)) if ratios else None,
                "ratio_max": digits(max(ratios)) if ratios else None,
                "rounds": [[digits(a), digits(b)] for a, b in zip(self.ours, self.theirs)], **more}


def digits(x):
    return None if x is None else float(f"{x:.4g}")


class Turn:
    """Time and CPU seconds of one side's turn."""

    def __init__(self, cpu):
        self.cpu = cpu

    def __enter__(self):
        self.begin, self.cpu_begin = time.monotonic(), self.cpu.seconds()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.begin
        end = self.cpu.seconds()
        self.cpu_seconds = None if end is None else end - self.cpu_begin


def total(values):
    values = list(values)
    return None if any(v is None for v in values) or not values else round(sum(values), 2)


def report(name, parameters, results):
    print(json.dumps({"name": name, "parameters": {**parameters, "machine": machine()}, "results": results}, indent=1))


def process_cpu(pid):
    """CPU seconds of a process with its threads."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def process_rss(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(round(int(x.split()[1]) / 1024, 1) for x in file if x.startswith("VmRSS"))


def by_threads(count, connections, one):
    """one(0) to one(count - 1), by that many threads; the first failure is the caller's."""
    failed = []

    def work(k):
        try:
            for i in range(k, count, connections):
                one(i)
        except Exception as error:  # pylint: disable=broad-except
            failed.append(error)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(connections)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]
