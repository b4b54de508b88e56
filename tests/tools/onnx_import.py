#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads ONNX files of other programs, and compares the logits with those of ONNX Runtime.

    python3 tests/tools/onnx_import.py READER [FILE.onnx[@C,H,W]…]      READER: the program onnx_read

C, H, W: the shape of a row if the file leaves it open.

Without files: models that PyTorch exports, by both exporters, and the models of onnx's own backend
tests, those of old versions of the operators in version 17 too. A file is read, and its logits then are those of ONNX Runtime to 1e-5 of the largest, before
and after it is exported again; or it is refused with a message that names the node and its operator,
unless its graph has no node or its version of the operators is not read. 77: a module is missing.
"""

import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnx.version_converter
    import onnxruntime
    from onnx.backend.test.case.node import collect_testcases
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BOUND = 1e-5
ROWS = 3


def session_of(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(path, x):
    session = session_of(path)
    given = session.get_inputs()[0]
    kind = {"tensor(float16)": np.float16, "tensor(double)": np.float64}.get(given.type, np.float32)
    whole = not isinstance(given.shape[0], int) or given.shape[0] == len(x)
    parts = [x] if whole else np.split(x, len(x) // given.shape[0])
    return np.concatenate([np.asarray(session.run(None, {given.name: p.astype(kind)})[0], np.float64)
                           .reshape(len(p), -1) for p in parts])


def softmax(y):
    e = np.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def last_operator(path):
    """Returns the operator that gives the first output, before any Identity."""
    graph = onnx.load(path, load_external_data=False).graph
    nodes = {name: n for n in graph.node for name in n.output}
    node = nodes.get(graph.output[0].name)
    while node is not None and node.op_type == "Identity":
        node = nodes.get(node.input[0])
    return node.op_type if node is not None else None


def check(reader, named, place):
    """Returns (what happened, the largest difference or None)."""
    path = Path(str(named).split("@")[0])
    told = subprocess.run([reader, named], capture_output=True, text=True, timeout=100)
    if told.returncode == 2:
        line = told.stdout.strip().splitlines()[-1]
        return "refused: " + line.replace(str(path.parent), ""), None
    if told.returncode:
        return f"FAILED: status {told.returncode} {told.stderr[:200]}", None
    size = told.stdout.split("rows of ")[1].split(",")[0].split("×")
    shape = tuple(int(side) for side in size)
    given = session_of(path).get_inputs()[0].shape
    rows = given[0] if isinstance(given[0], int) else ROWS
    x = np.random.default_rng(1).standard_normal((rows, *shape)).astype(np.float32)
    x.tofile(place / "x")
    again = place / "again.onnx"
    told = subprocess.run([reader, named, place / "x", str(rows), place / "y", again],
                          capture_output=True, text=True, timeout=300)
    if told.returncode:
        return f"FAILED: {told.stdout[-300:]} {told.stderr[-300:]}", None
    ours = np.fromfile(place / "y", np.float32).reshape(rows, -1)
    ranks = {2: (rows, shape[0]), 3: (rows, *shape[1:]), 4: (rows, *shape)}
    theirs = run(path, x.reshape(ranks[len(given)]))
    last = last_operator(path)
    if last in ("Softmax", "LogSoftmax"):
        ours = softmax(ours)
        theirs = np.exp(theirs) if last == "LogSoftmax" else theirs
    largest = max(1e-3, np.abs(theirs).max())
    worst = np.abs(ours - theirs).max() / largest
    flat = shape[1] * shape[2] == 1
    twice = run(again, x.reshape(rows, -1) if flat else x.reshape(rows, *shape))
    if last in ("Softmax", "LogSoftmax"):
        twice = softmax(twice)
    return "read", max(worst, np.abs(twice - theirs).max() / largest)


def exported(place):
    """Exports networks of PyTorch and torchvision, if they are installed."""
    try:
        import torch
        from torch import nn
    except ImportError:
        return []
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    small = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardswish(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=2), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 6), nn.LayerNorm(6), nn.Hardsigmoid(), nn.Linear(6, 4), nn.Softmax(1))

    class Uneven(nn.Module):
        """Padding that differs from side to side, limits, powers, and Gelu with tanh."""

        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3, stride=2)
            self.second = nn.Conv2d(8, 8, (2, 3), padding="same")
            self.gelu = nn.GELU(approximate="tanh")
            self.last = nn.Linear(8, 4)

        def forward(self, x):
            x = self.gelu(self.first(nn.functional.pad(x, [0, 1, 2, 0])))
            x = torch.clamp(x * 2 - 0.1, -0.2, 0.9) * 3
            x = self.second(x) * x.clamp(min=-0.1) + x ** 3 / 7
            x = nn.functional.max_pool2d(nn.functional.pad(x, [1, 0, 0, 1]), 2)
            x = torch.tanh(x + 0.1 * x ** 3) + x * x
            return self.gelu(self.last(x.mean((2, 3))) + 1) / 1.7

    def one(layer):
        return nn.Sequential(nn.Conv2d(3, 8, 3), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

    nets = {"small": (small, (1, 3, 12, 10)), "uneven": (Uneven(), (1, 3, 12, 11)),
            "dilated_pool": (one(nn.MaxPool2d(2, dilation=2)), (1, 3, 12, 10)),
            "linear": (one(nn.Upsample(scale_factor=2, mode="bilinear")), (1, 3, 12, 10)),
            "pools": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.AvgPool2d(3, 2, ceil_mode=True), nn.AvgPool2d(2, padding=1, ceil_mode=True),
                                    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)), (1, 3, 13, 10)),
            # The last window begins in the padding at the right, and extends beyond the image at the bottom. (Files of the exporter
            # with dynamo=False have a window too many at the right.)
            "mixed": (nn.Sequential(nn.Conv2d(3, 8, 1), nn.AvgPool2d((3, 2), 2, padding=(0, 1), ceil_mode=True), nn.Flatten(),
                                    nn.Linear(48, 4)), (1, 3, 6, 3)),
            "norms": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.LayerNorm((4, 4, 5)), nn.ReLU(), nn.Flatten(),
                                    nn.LayerNorm(80, elementwise_affine=False), nn.Linear(80, 6), nn.LayerNorm(6), nn.Linear(6, 3)),
                      (1, 3, 6, 7))}
    preserved = {"dynamo": False, "training": torch.onnx.TrainingMode.PRESERVE}
    trained = {"dynamo": False, "training": torch.onnx.TrainingMode.TRAINING}
    ways = [(name, f"{name}_{'dynamo' if dynamo else 'script'}", {"dynamo": dynamo}) for name in nets for dynamo in (False, True)
            if dynamo or name != "mixed"]
    ways += [(name, f"{name}_script{version}", {"dynamo": False, "opset_version": version}) for name, version in (
        ("uneven", 11), ("uneven", 14), ("small", 17), ("small", 20), ("pools", 11), ("norms", 11), ("norms", 14), ("norms", 16), ("norms", 17))]
    ways += [("small", "small_preserved", preserved), ("small", "small_not_optimized", {"dynamo": True, "optimize": False}),
             ("small", "small_in_training", trained)]
    files = []
    for name, file, how in ways:
        net, shape = nets[name]
        net.train(how is trained)
        x = torch.randn((2, *shape[1:]) if how is trained else shape)
        path = place / f"{file}.onnx"
        try:
            torch.onnx.export(net, (x,), path, verbose=False, **how)
            files.append(path)
        except ImportError as missing:
            print(f"{path.name}: skipped: {missing}")
    return files


def backend():
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    return sorted(data.glob("*/*/model.onnx")) + sorted(data.glob("light/*.onnx"))


def cases(place):
    """Writes the models of onnx's tests of single operators."""
    warnings.filterwarnings("ignore")
    files = []
    for case in collect_testcases(None):
        if case.model is not None:
            files.append(place / f"{case.name}.onnx")
            onnx.save(case.model, files[-1])
    return files


def renewed(paths, place):
    """Converts files of versions of the operators that are not read to version 17, with images as vectors at the end."""
    files = []
    for path in paths:
        model = onnx.load(path)
        if not model.opset_import or model.opset_import[0].version >= 9:
            continue
        try:
            model = onnx.version_converter.convert_version(model, 17)
        except Exception:  # operators that the converter does not know
            continue
        output = model.graph.output[0]
        if len(model.graph.output) == 1 and len(output.type.tensor_type.shape.dim) > 2:
            model.graph.node.append(onnx.helper.make_node("Flatten", [output.name], ["flat"], axis=1))
            del model.graph.output[:]
            model.graph.output.append(onnx.helper.make_tensor_value_info("flat", 1, None))
        files.append(place / f"{path.parent.name}_17.onnx")
        onnx.save(model, files[-1])
    return files


# A refusal names the node with its operator. Only a graph without nodes and the version of the operators belong to no node.
NAMED = re.compile(r"\.onnx: (node \d+ \".*\" \(\w+\): |its graph has no nodes|it has version \d+ of the operators)")

# The models among those that PyTorch exports that are not read.
REFUSED = re.compile("dilated_pool|linear|small_in_training")


def main():
    reader, named = sys.argv[1], [Path(f) for f in sys.argv[2:] if f != "-v"]
    failures = read = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        made = [] if named else exported(place)
        files = named or made + backend() + cases(place) + renewed(backend(), place)
        for path in files:
            try:
                what, worst = check(reader, path, place)
            except Exception as failed:  # onnxruntime has many
                what, worst = f"not run by onnxruntime: {str(failed)[:120]}", None
            bad = "FAILED" in what or (worst is not None and not worst <= BOUND)
            if what.startswith("refused") and (not NAMED.search(what) or (path in made and not REFUSED.match(path.name))):
                bad = True
            failures += bad
            read += what == "read"
            name = path.stem if path.stem != "model" else path.parent.name
            if named or bad or what == "read" or "-v" in sys.argv:
                print(f"{name:44} {what} {'' if worst is None else f'{worst:.1e}'}"
                      f"{'  FAILED' if bad else ''}", flush=True)
    print(f"{len(files)} files, {read} read, {failures} failures")
    return 1 if failures or not read else 0


if __name__ == "__main__":
    sys.exit(main())
