# SPDX-License-Identifier: MIT
"""What a forgery of forge.py is, and what docs/verify.md says must come out."""
import re
from dataclasses import dataclass, field
from typing import Any, Callable

WHOLE = "has the run's directory and own data; --all"
ALONE = "has the receipt and the weights alone, and own data"


@dataclass
class Forgery:
    name: str
    prover: str  # what the prover changes
    make: Callable  # make(world, run) changes the run; returns verify's arguments, or None: the directory and --all
    expect: tuple  # kind of outcome, and a pattern of the message or a sentence of the page
    of: str = "csv"  # the honest run that is forged
    verifier: str = WHOLE
    long: bool = False  # left out of the short form


@dataclass
class Forgeries:
    """A list to which a decorator appends."""
    list: Any = field(default_factory=list)

    def add(self, name, make, prover, expect, **more):
        self.list.append(Forgery(name, prover, make, expect, **more))

    def of(self, name, prover, expect, **more):
        def keep(make):
            self.add(name, make, prover, expect, **more)
            return make
        return keep


# ---- what must come out

def found(*places):
    """Exit status 1, with one of these places (regular expressions) in the sentence."""
    return "found", "|".join(places)


def member(name):
    """A member of the receipt is named."""
    return found(re.escape(f"receipt.json: {name}"))


def segment(number, of, more=""):
    return found(rf"segment {number} of {of}\b.*{more}")


def refused(pattern):
    """Neither 0 nor 1, with a message of this pattern."""
    return "refused", pattern


NOTICED = ("noticed", "any message")


def nothing(sentence):
    """Exit status 0, and this sentence is on the page."""
    return "nothing", sentence


def rate(touched, middle, drawn):
    """Found by as many draws as the page's formula says."""
    return "sampled", (touched, middle, drawn)


# ---- sentences of the page

BESIDES = ("Times, devices, hosts and faults in `metrics.jsonl`, unknown keys in its records, and what a checkpoint "
           "contains besides tensors are compared with nothing.")
DATA = "Rows may be wrong, chosen, or poisoned before they were hashed."
TEST_ROWS = "Test rows may be among the training rows."
CHOSEN = "**That seed and recipe were not chosen** among many runs for a pleasant result."
WHEN = "A prover can compute a receipt at any time after the data is known."
FIRST_WEIGHTS = "the receipt has the hash of the file only"
NO_EFFECT = "**That the choice of keys without effect was the prover's.**"
NOT_DRAWN = "The records of segments that are not drawn are not compared."
PATIENCE = "With `patience`, only `--all` shows that the run ended where patience ends it"
MISSING = ("Records that a resumed run lacks because another program has moved `metrics.jsonl` are not compared; the "
           "sentence says so.")
PLACES = "The prover's config says only where the data are, if the verifier does not."
DEVICES = "It has devices of its own."
ABSENT = "Records and weights that the directory lacks are not compared; the sentence says so."
NO_RECEIPT = "`--all` needs no checkpoints, and no receipt; the sentence says if there was none."
OUTSIDE = "Keys of `config.json` that are not part of the recipe are compared with nothing"
KERNELS = "The version of the kernels counts in the receipt, not in the records."
PROGRAM = "version of the receipt, and of the program; the latter proves nothing"
THRESHOLD = "A threshold that `eval --keep` added to `weights.safetensors` after the training is no difference"
