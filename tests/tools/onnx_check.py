#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks ONNX files with the official checker and onnxruntime.

    python3 tests/tools/onnx_check.py SAMPLES EXAMPLE.json…      SAMPLES: the program onnx_samples

Each file must pass onnx.checker with shape inference, and give the logits that Lockstep computed,
to 1e-5 of the largest (and at least of 1), at any batch size. 77: a module is missing.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BOUND = 1e-5


def check(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    kind = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32}[session.get_inputs()[0].type]
    x = np.fromfile(path.with_suffix(".x"), kind).reshape(-1, *shape[1:])
    theirs = np.concatenate([session.run(None, {"x": part})[0]
                             for part in (x[:1], x[1:8], *np.array_split(x[8:], 5))])
    ours = np.fromfile(path.with_suffix(".y"), np.float32).reshape(theirs.shape)
    largest = max(1, np.abs(ours).max())
    return len(model.graph.node), len(x), np.abs(theirs - ours).max() / largest


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.argv[1], place, *sys.argv[2:]], check=True)
        files = sorted(Path(place).glob("*.onnx"))
        for path in files:
            nodes, rows, worst = check(path)
            verdict = "" if worst <= BOUND else "  FAILED"
            failures += int(worst > BOUND)
            print(f"{path.stem:20} {nodes:3} nodes  {rows:5} images  {worst:.1e}{verdict}")
    print(f"{len(files)} files, {failures} failures; onnx {onnx.__version__}, "
          f"onnxruntime {onnxruntime.__version__}")
    return 1 if failures or not files else 0


if __name__ == "__main__":
    sys.exit(main())
