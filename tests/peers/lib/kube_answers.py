"""A Target whose API server answers badly, each kind of write of a run's life a few times: its effect stays and the answer is lost, or
there is no effect and some error, or half an answer. Whatever it is, each run runs once and ends, and nothing of it is left."""
from kube_hub import OVER, Hub

BEGIN = (("POST", r"/secrets\b"), ("POST", r"/jobs\b"), ("PATCH", "/jobs/"), ("PATCH", "/pods/"))
END = (("PATCH", "/jobs/"), ("DELETE", "/jobs/"), ("DELETE", "/secrets/"), ("DELETE", "/pods/"), ("PATCH", "/pods/"))
FAULTS = {"lost": {"do": "lose"}, "reset": {"do": "reset"}, "half": {"do": "half"}, "conflict": {"do": "answer", "status": 409},
          "gone": {"do": "answer", "status": 410}, "busy": {"do": "answer", "status": 429, "retry_after": 1},
          "broken": {"do": "answer", "status": 500}, "away": {"do": "answer", "status": 503}}


class Answers(Hub):
    ends = False

    def met(self, rules):
        return [(r["method"], r["path"]) for r in self.proxy.rules() if r["id"] in rules and not r["hits"]]

    def round(self, name):
        """Each kind of write of its beginning and of its end meets that fault twice."""
        names = [f"{name}{i}" for i in range(4)]
        rules = [self.proxy.rule(method=m, path=p, times=2, **FAULTS[name]) for m, p in BEGIN]
        self.work(*names)
        for n in names:
            self.phase(n, "Running", *OVER)
        self.check("each write of a beginning met it", not self.met(rules), self.met(rules))
        self.proxy.drop()
        rules = [self.proxy.rule(method=m, path=p, times=2, **FAULTS[name]) for m, p in END]
        for n in names:
            self.finish(n)
        self.all_ended(names)
        self.once(*names)
        self.clean()
        self.check("each write of an end met it", not self.met(rules), self.met(rules))
        self.proxy.drop()
