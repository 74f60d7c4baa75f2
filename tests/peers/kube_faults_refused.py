#!/usr/bin/env python3
"""Refusals without a reason, each to every kind of write: 409 and 410 from a server that has done nothing."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from kube_answers import Answers  # noqa: E402
from parts import run  # noqa: E402


class Refused(Answers):
    def it_says_conflict(self):
        self.round("conflict")

    def it_says_gone(self):
        self.round("gone")


if __name__ == "__main__":
    sys.exit(run(Refused, "kube-refused", [Refused.it_says_conflict, Refused.it_says_gone]))
