"""For tools that keep a format of their own in a bucket, where `suite.py` can't say what they do.

A tool is a row of functions, each of which does one thing that its users do and checks it, with
`bare` for a second look. They run in this order in one bucket, which is emptied and removed in the end.
"""

import sys

import bare
import suite


def main(*tasks):
    """Does all tasks; the last line tells which."""
    bare.make_bucket()
    done = suite.run([(task.__name__.replace("_", " "), task) for task in tasks])
    suite.same(bare.uploads(), [], "uploads that were left unfinished")
    bare.empty()
    bare.remove_bucket()
    print(", ".join(done))
    sys.exit(0)
