"""What an API server has seen, from itself: each version of each Job, pod and Secret of a namespace, by watches that go straight to
it. Of what ran it is the judge: a pod has run when it was bound to a node, whoever says what of it. It also lets pods end.
A server that was started again does not tell what it told before: then it is listed anew, and what had come and gone meanwhile is not
seen. But Jobs of ours stay when their run is over, and say which pods they admitted."""
import http.client
import json
import queue
import threading
import time

KEY, MARK, FINALIZER, GATE = "hanse.dev/key", "hanse.dev/mark", "hanse.dev/run", "hanse.dev/run"
INDEX = "batch.kubernetes.io/job-completion-index"
PATHS = {"pods": "/api/v1/namespaces/{}/pods", "jobs": "/apis/batch/v1/namespaces/{}/jobs", "secrets": "/api/v1/namespaces/{}/secrets"}
BROKEN = (OSError, http.client.HTTPException, ValueError)


class Seen:
    """One object, by its uid."""

    def __init__(self, kind, first):
        self.kind, self.first, self.last, self.gone, self.bound, self.ran, self.over, self.began = kind, first, first, False, "", False, "", 0
        self.admitted = set()

    def take(self, o):
        self.last = o
        if self.kind == "jobs":
            self.admitted |= set(self.annotations.get("hanse.dev/admitted", "").split())
        if self.kind == "pods":
            self.bound = o["spec"].get("nodeName") or self.bound
            phase = o.get("status", {}).get("phase")
            self.ran |= phase == "Running"
            self.over = phase if phase in ("Succeeded", "Failed") else self.over

    meta = property(lambda self: self.last["metadata"])
    name = property(lambda self: self.meta["name"])
    key = property(lambda self: self.first["metadata"].get("labels", {}).get(KEY, ""))
    annotations = property(lambda self: self.meta.get("annotations", {}))
    part = property(lambda self: self.annotations.get("hanse.dev/part", ""))

    @property
    def rank(self):
        """Of a part: as it was let in."""
        return self.annotations.get("hanse.dev/rank", "") if self.part else self.first["metadata"].get("labels", {}).get(INDEX, "")
    deleting = property(lambda self: "deletionTimestamp" in self.meta)
    held = property(lambda self: FINALIZER in self.meta.get("finalizers", []))
    owner = property(lambda self: next((r["uid"] for r in self.first["metadata"].get("ownerReferences", [])), ""))

    def __repr__(self):
        return (f"{self.kind[:-1]} {self.name} {self.meta['uid'][:8]}{' gone' if self.gone else ' deleting' if self.deleting else ''}"
                f"{' on ' + self.bound if self.bound else ''}{' ' + self.over if self.over else ''}")


class History:
    def __init__(self, peer, namespace, ends=True):
        """ends: pods end by themselves, soon after they began; else those of let_end()."""
        self.peer, self.namespace, self.ends, self.ending = peer, namespace, ends, set()
        self.lock, self.objects, self.stopping = threading.Lock(), {}, False
        self.to_end, self.asked = queue.Queue(), set()
        self.threads = [threading.Thread(target=self._follow, args=(kind,), daemon=True) for kind in PATHS]
        self.threads += [threading.Thread(target=self._end, daemon=True) for _ in range(4)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopping = True

    # ---- following --------------------------------------------------------------------------------------

    def _follow(self, kind):
        since, path = None, PATHS[kind].format(self.namespace)
        while not self.stopping:
            try:
                if since is None:
                    status, listed = self.peer.call("GET", path)
                    if status != 200:
                        raise ValueError(status)
                    self._listed(kind, listed)
                    since = listed["metadata"]["resourceVersion"]
                since = self._watch(kind, path, since)
            except BROKEN:
                time.sleep(0.1)

    def _watch(self, kind, path, since):
        """The version to go on from; None: it is too old, and something may have been missed."""
        connection = self.peer.connect(timeout=30)
        try:
            connection.request("GET", f"{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=20&resourceVersion={since}",
                               headers={"Authorization": "Bearer " + self.peer.token})
            answer = connection.getresponse()
            if answer.status == 410:
                return None
            if answer.status != 200:
                time.sleep(0.1)
                return since
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return None if event["object"].get("code") == 410 else since
                since = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._take(kind, event["object"], event["type"] == "DELETED")
        except BROKEN:
            time.sleep(0.05)
        finally:
            connection.close()
        return since

    def _listed(self, kind, listed):
        there = {o["metadata"]["uid"] for o in listed["items"]}
        with self.lock:
            for uid, seen in self.objects.items():
                seen.gone |= seen.kind == kind and uid not in there
        for o in listed["items"]:
            self._take(kind, o, False)

    def _take(self, kind, o, gone):
        with self.lock:
            seen = self.objects.setdefault(o["metadata"]["uid"], Seen(kind, o))
            seen.take(o)
            seen.gone = gone
            wanted = kind == "pods" and seen.ran and not seen.over and not gone and seen.key and (self.ends or seen.key.split(".")[0] in self.ending)
            if wanted and o["metadata"]["uid"] not in self.asked:
                self.asked.add(o["metadata"]["uid"])
                self.to_end.put(seen)

    # ---- ending -----------------------------------------------------------------------------------------

    def _end(self):
        """kwok ends pods that say so."""
        while not self.stopping:
            try:
                seen = self.to_end.get(timeout=1)
            except queue.Empty:
                continue
            try:
                status = self.peer.call("PATCH", f"/api/v1/namespaces/{self.namespace}/pods/{seen.name}", {
                    "metadata": {"uid": seen.meta["uid"], "annotations": {"pod-complete.test/delay": "100ms"}}}, kind="application/merge-patch+json")[0]
                again = status not in (200, 404, 409)
            except BROKEN:
                again = True
            if again:
                time.sleep(0.2)
                self.to_end.put(seen)

    def let_end(self, *uids):
        """Pods of the workloads of these uids; of all, without."""
        with self.lock:
            self.ends = self.ends or not uids
            self.ending |= set(uids)
            now = [o for o in self.objects.values() if o.kind == "pods" and o.ran and not o.over and not o.gone and o.key
                   and (self.ends or o.key.split(".")[0] in self.ending) and o.meta["uid"] not in self.asked]
            self.asked |= {o.meta["uid"] for o in now}
        for o in now:
            self.to_end.put(o)

    def kubelet_ends(self, pod, code=0, names=("main",)):
        """kwok does not end pods that are being deleted and held: as their kubelet would tell it."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": now, "finishedAt": now}
        body = {"status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [
            {"name": n, "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}} for n in names]}}
        return self.peer.call("PATCH", f"/api/v1/namespaces/{self.namespace}/pods/{pod.name}/status", body, kind="application/merge-patch+json")[0]

    # ---- judging ----------------------------------------------------------------------------------------

    def all(self, kind, workload=None):
        """Those of ours that ever were; of one workload's uid."""
        with self.lock:
            return [o for o in self.objects.values() if o.kind == kind and (o.key.split(".")[0] == workload if workload else o.key)]

    def there(self, kind, workload=None):
        return [o for o in self.all(kind, workload) if not o.gone]

    def ran(self, workload=None):
        """Pods that ran, and that a Job has made: others are of somebody else, whatever their labels say."""
        return [o for o in self.all("pods", workload) if o.bound and o.owner]

    def twice(self):
        """What must not be: of one key two Jobs that admitted something, of one rank of one key two pods with a node."""
        said, first = [], {}
        for o in self.ran():
            other = first.setdefault((o.key, o.rank), o)
            if other is not o:
                said.append(f"{o.key} rank {o.rank}: {other} and {o}")
        first = {}
        for o in self.all("jobs"):
            if o.admitted:
                other = first.setdefault(o.key, o)
                if other is not o:
                    said.append(f"{o.key}: {other} and {o} have both admitted pods")
        return said

    def left(self):
        """What should have gone: all but Jobs that can run nothing and keep their name taken."""
        said = [repr(o) for o in self.there("secrets") + [p for p in self.there("pods") if p.owner]]
        for o in self.there("jobs"):
            if "hanse.dev/tombstone" not in o.annotations and not (o.deleting and "hanse.dev/end" in o.annotations):
                said.append(repr(o))
        return said
