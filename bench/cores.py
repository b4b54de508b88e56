#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Says what many cores of one machine would do for a training step, and prints a table.

    python3 bench/cores.py [--build build/release] [--cores 64] [--steps 3] [CONFIG…]

bench_team counts the jobs and joins of the teams, their items, and context switches of a step. Jobs and items do not
depend on the number of cores, so they are counted with as many threads as the machine of the model has cores, on the
cores that there are. Context switches do depend on it: they are shown, but the model does not use them. One worker of
one thread measures the arithmetic, in CPU time. scale_model.py computes the time of a step from these numbers and
from four assumptions, which are options: how long a join and a barrier take, how many bytes per second all cores
move, and the number of cores. It further assumes that all cores compute as fast as the measured one.

CONFIG: a config; else LeNet, ResNet-18 and MobileNet. It is trained with synthetic data if it names a set of pictures.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from scale_model import Cores, Counts, bytes_of_step, on_cores

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ("fashion_mnist", "resnet18", "mobilenet")


def count(program, config, steps, workers, threads, shards):
    """The answer of bench_team: the counts of one step, as a mean of `steps` steps."""
    batch = json.loads(config.read_text())["batch_size"]
    settings = [f"devices=cpu:{workers}", f"threads={threads}", f"shards={shards}", "epochs=1",
                f"data.limit={batch * steps}"]
    command = [program, config]
    for setting in settings:
        command += ["--set", setting]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def prepared(path, folder):
    """A copy of a config, with synthetic data in the place of a set of pictures that may have to be fetched."""
    config = json.loads(path.read_text())
    if config.get("data", {}).get("name", "fashion_mnist") not in ("npy", "csv", "idx", "folder"):
        config["data"] = {"name": "synthetic"}
    copy = folder / path.name
    copy.write_text(json.dumps(config))
    return copy


def rows_of(path, args, machine):
    """Lines of the table: workers × threads that use all cores, from one worker for each shard on."""
    with tempfile.TemporaryDirectory() as folder:
        config = prepared(path, Path(folder))
        one = count(args.program, config, args.steps, 1, 1, 8)
        for workers in (8, 16):
            many = count(args.program, config, args.steps, workers, args.cores // workers, workers)
            counts = Counts(workers, many["threads"], many["shards"], many["parameter_bytes"], many["jobs"],
                            many["items"], one["cpu_s"])
            parts = on_cores(counts, machine)
            step = sum(parts.values())
            cells = [path.stem, one["rows"], f"{workers} × {many['threads']}", f"{1e3 * one['cpu_s']:.1f}",
                     f"{many['jobs'] / workers:.0f}", f"{many['items'] / max(many['jobs'], 1):.0f}",
                     f"{many['switches']:.0f}", f"{bytes_of_step(counts) / 1e6:.1f}"]
            cells += [f"{1e3 * part:.2f}" for part in parts.values()]
            yield cells + [f"{1e3 * step:.2f}", f"{one['cpu_s'] / step / args.cores:.0%}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3, help="steps of each count")
    parser.add_argument("--join-us", type=float, default=1.0, help="join of two threads")
    parser.add_argument("--barrier-us", type=float, default=2.0, help="barrier of two workers")
    parser.add_argument("--gb-s", type=float, default=300, help="10⁹ bytes per second of all cores together")
    parser.add_argument("config", nargs="*", type=Path, metavar="CONFIG",
                        default=[ROOT / f"examples/{name}.json" for name in CONFIGS])
    args = parser.parse_args()
    if args.cores < 16:
        parser.error("--cores: expected at least 16")
    args.program = args.build / "bench/bench_team"
    machine = Cores(args.cores, 1e-6 * args.join_us, 1e-6 * args.barrier_us, 1e9 * args.gb_s)
    print(f"Assumed: {args.cores} cores as fast as this one, {args.gb_s:g} GB/s of all together, a join of two "
          f"threads {args.join_us:g} us, a barrier of two workers {args.barrier_us:g} us, both growing by log2.\n")
    print("| config | rows | workers × threads | CPU of one thread, ms | jobs of a worker | items of a job | switches, "
          "counted | MB moved | arithmetic, ms | last items | joins | barriers | bytes | step | of the cores' peak |")
    print("|---|---:|---|" + "---:|" * 12)
    for path in args.config:
        for cells in rows_of(path, args, machine):
            print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
