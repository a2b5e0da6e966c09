"""The proofs in theory/*.v: Coq accepts them, they are about this code, and wrong ones fail."""

import itertools
import os
import re
import shutil
import subprocess
from collections import defaultdict
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from exact.law import law
from exact.rules import TENTHS, TOYS, X
from speculative import complete, draft_and_verify, make_step, verify
from tests.toys import path_by_path
from variants.block import block_verify
from variants.shared.best_tree import n_levels
from variants.traversal import verify_traversal
from variants.tree import guess_shape, verify_tree

THEORY = Path(__file__).parent.parent / "theory"
FILES = ("lossless", "block", "tree", "traversal")  # each imports only files before it
SHAPE = [(0,), (1,), (0, 0), (0, 0, 0)]  # two guesses, then a chain below the first

EVALUATE = """
From Coq Require Import List QArith Qcanon.
Require Import lossless block tree traversal.
Import ListNotations.

(* The probability of each outcome, as numerator and denominator. *)
Definition law {A} (key : A -> list nat) (m : D A) (outcomes : list (list nat)) :=
  map (fun y => let p := this (probability (ids <- m; ret (is y (key ids)))) in
                (Qnum p, Zpos (Qden p))) outcomes.
Definition length_and_last (ids : text) : list nat := [length ids; last ids 0%nat].
Definition tenths (rows : list (list Z)) := map (map (fun n => Q2Qc (n # 10))) rows.
Definition markov (rows : list (list Qc)) : model :=
  fun x v => nth v (nth (last x 0%nat) rows []) 0%Qc.
"""


def run_coqc(folder, file):
    return subprocess.run(["coqc", file], cwd=folder, capture_output=True, text=True)
