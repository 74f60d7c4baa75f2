#!/usr/bin/env python3
"""Ranks that go on step by step together and save into one folder, with nothing but Python and hanse: what the frameworks do for
their programs is done here by a socket."""
import os
import socket
import struct
import time

import hanse

STEPS = 4000


class Peers:
    """All ranks say a number, and all hear the largest."""

    def __init__(self, rank, world):
        at = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "0")))
        self.rank, self.links = rank, []
        if rank == 0 and world > 1:
            with socket.create_server(at) as door:
                self.links = [door.accept()[0] for _ in range(world - 1)]
        while rank and not self.links:
            try:
                self.links = [socket.create_connection(at)]
            except OSError:
                time.sleep(0.1)

    @staticmethod
    def _hear(link):
        text = b""
        while len(text) < 8:
            more = link.recv(8 - len(text))
            if not more:
                raise SystemExit("a peer has gone")
            text += more
        return struct.unpack("!q", text)[0]

    def agree(self, number):
        if self.rank:
            self.links[0].sendall(struct.pack("!q", number))
            return self._hear(self.links[0])
        number = max([number] + [self._hear(link) for link in self.links])
        for link in self.links:
            link.sendall(struct.pack("!q", number))
        return number


run = hanse.run()
peers = Peers(run.rank, run.world_size)
print(f"rank {run.rank} of {run.world_size} on {run.target}", flush=True)
with hanse.Saver(agree=peers.agree) as saver:
    folder, step = saver.resume_folder(), 0
    if folder:
        step = int((folder / f"rank-{run.rank}").read_text())
    print(f"from step {step}", flush=True)
    while step < STEPS:
        step += 1
        time.sleep(0.02)
        if step % 10 == 0:
            print(f"step {step}", flush=True)
        if saver.should_save():
            with saver.step(step) as folder:
                (folder / f"rank-{run.rank}").write_text(str(step))
            saver.finish()
