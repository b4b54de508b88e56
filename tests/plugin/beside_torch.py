# SPDX-License-Identifier: MIT
"""beside_torch.py ORDER STUBS SOURCES: uses Lockstep and a stub of PyTorch in one process. ORDER:

    plugin   a trainer that looks for GPUs, then `import torch`
    torch    `import torch`, then the trainer
    cpu      a trainer on CPUs loads none of NVIDIA's libraries; then `import torch`
    broken   PyTorch's copy of NCCL does not load: the trainer raises an error that says what to do

STUBS: "-" for a PyTorch that is installed; else the folder with the package `torch`, the library in it, and a library with the name of NCCL (CMakeLists.txt).
SOURCES: folder with the Python package. A library with the name of NVIDIA's driver is in LD_LIBRARY_PATH.
"""
import importlib
import shutil
import sys
import tempfile
from pathlib import Path

import numpy

order, stubs, sources = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
sys.path.insert(0, str(sources))
lockstep = importlib.import_module(next(sources.glob("*/__init__.py")).parent.name)
config = {"model": {"layers": [{"type": "dense", "out": 2}]}, "optimizer": {"name": "sgd", "lr": 0.1}, "epochs": 1}
rows = numpy.zeros((32, 4), numpy.float32), numpy.arange(32) % 2


def train(**more):
    with lockstep.Trainer({**config, **more}, data=rows, test=rows) as trainer:
        trainer.fit()


def mapped(name):
    return [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if name in line]


if order == "broken":
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(stubs / "torch", Path(folder) / "torch")
        beside = Path(folder) / "nvidia/nccl/lib"
        beside.mkdir(parents=True)
        (beside / "libnccl.so.2").write_text("no library")
        sys.path.insert(0, folder)
        try:
            train()
        except lockstep.Error as error:
            assert error.status == "LS_EDEVICE" and "import torch first" in str(error), error
            sys.exit()
    sys.exit("no error")

if str(stubs) != "-":
    sys.path.insert(0, str(stubs))
if order == "torch":
    import torch
train(**({"devices": "cpu:1"} if order == "cpu" else {}))
if order == "cpu":
    assert not mapped("libnccl") and not mapped("libcudnn"), mapped("lib")
else:
    assert mapped("libcudnn"), "the plugin was not loaded"
import torch  # noqa: E402, F811

of_torch = Path(torch.__file__).parents[1] / "nvidia/nccl/lib/libnccl.so.2"
assert {Path(path).resolve() for path in mapped("libnccl")} == {of_torch.resolve()}, mapped("libnccl")
