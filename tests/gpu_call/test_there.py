#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_there.py BENCH-GPU: what once.py does on the machine with the GPU. A build there is for the
GPUs that are there; what PyTorch compiled comes home if it is small.
"""

import os
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, sys.argv[1])

import once  # noqa: E402


def test_architectures(folder):
    tool = folder / "nvidia-smi"
    path, os.environ["PATH"] = os.environ["PATH"], str(folder)
    try:
        assert once.architectures_there() == "native"
        for said, wanted in (("9.0\\n9.0", "90-real"), ("8.0\\n9.0", "80-real\\;90-real"), ("10.0", "100-real"),
                             ("no devices were found", "native"), ("", "native")):
            tool.write_text(f"#!/bin/sh\nprintf '{said}\\n'\n")
            tool.chmod(0o755)
            found = once.architectures_there()
            assert found == wanted, f"{said}: {found}"
    finally:
        os.environ["PATH"] = path


def names_in(results, folder):
    once.archive(results, folder / "once.tar.gz")
    with tarfile.open(folder / "once.tar.gz") as tar:
        return set(tar.getnames())


def test_archive(folder):
    results = folder / "results"
    (results / "torch/inductor").mkdir(parents=True)
    (results / "rates.log").write_text("a line\n")
    (results / "torch/inductor/a.py").write_text("code")
    assert names_in(results, folder) == {"rates.log", "torch/inductor/a.py"}
    once.TORCH_MOST = 3
    assert names_in(results, folder) == {"rates.log"}


def main():
    with tempfile.TemporaryDirectory() as name:
        test_architectures(Path(name))
        test_archive(Path(name))


if __name__ == "__main__":
    main()
