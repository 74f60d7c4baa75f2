#!/usr/bin/env python3
"""Answers that do not come, each to every kind of write: the effect stays and the reply is lost; a connection is reset ahead of it; half
an answer; an API server that is busy, broken or away."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from kube_answers import Answers  # noqa: E402
from parts import run  # noqa: E402


class Lost(Answers):
    def replies_are_lost(self):
        self.round("lost")

    def connections_are_reset(self):
        self.round("reset")

    def answers_are_halves(self):
        self.round("half")

    def it_is_busy(self):
        self.round("busy")

    def it_is_broken(self):
        self.round("broken")

    def it_is_away(self):
        self.round("away")


if __name__ == "__main__":
    sys.exit(run(Lost, "kube-lost", [Lost.replies_are_lost, Lost.connections_are_reset, Lost.answers_are_halves, Lost.it_is_busy, Lost.it_is_broken, Lost.it_is_away]))
