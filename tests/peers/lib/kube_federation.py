"""What tests of Targets of type kubernetes have in common: a hub without agents, asked through the CLI, and a real API server beside it."""
import json

from federation import Federation


class KubeFederation(Federation):
    """begin() sets peer (kube.Kube) and, where there is one before it, proxy (fault_proxy.FaultProxy)."""
    size, peer, proxy = 1, None, None  # size: members of the hub

    def __init__(self, hanse, folder):
        super().__init__(hanse, "/bin/false", folder, targets=(), members=self.size)
        self.failed = 0

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {str(detail)[:1500]}" if detail != "" and not good else ""), flush=True)
        return good

    def stop(self):
        super().stop()
        if self.proxy:
            self.proxy.refuse()
        if self.peer:
            self.peer.close()

    def apply(self, *documents, check=True):
        return self.cli("apply", "-f", "-", check=check, timeout=60, text="---\n".join(json.dumps(d) + "\n" for d in documents))

    def object(self, kind, name, *more):
        done = self.cli("get", kind, name, "-o", "json", *more, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}
