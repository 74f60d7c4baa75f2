#!/usr/bin/env python3
"""A copy of the data that somebody put back by hand, and that does not know a Target: its agent alone has heard more. Prints ok or FAILED
per check."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from strangers import Strangers, run, unknown_to_a_copy  # noqa: E402

if __name__ == "__main__":
    sys.exit(run((unknown_to_a_copy,), kind=Strangers, members=3, targets=("left", "right", "late")))
