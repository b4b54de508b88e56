#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the cost of losing a worker, a host or a process during training.

    recovery.py BENCH_RECOVERY [--python PYTHON] [--kills N] [--json FILE] [--picture FILE]
    recovery.py BENCH_RECOVERY --shares [--mpi BENCH_HOSTS]

Trains LeNet on synthetic rows with three workers. One is lost at a random moment, and the run
continues:

    a worker                 a device of one process fails (an injected fault); the two other workers
                             take over its part
    a host, going on         one of three processes is killed; the remaining two form a new group
                             (cluster.on_host_loss "continue")
    a host, by resume        one of three processes is killed; the others save and stop, and all
                             three are started again with --resume
    a host that comes        two processes train, and a third one is admitted at the end of an epoch
                             (cluster.on_arrival "admit"): the time from the last step of the two to
                             the first step of the three
    torchrun, every step     one of torchrun's three processes is killed (DistributedDataParallel
    torchrun, every 10       over gloo); a checkpoint is saved every step, or every ten; torchrun
                             starts all three again

Prints a table: the time from the loss until the remaining or restarted processes have completed a new
step; the number of steps that were computed again; and whether the weights are those of an
undisturbed run. If the lost process had done its part of a step, the others can complete that step
after the loss; the time then goes on until the next step. The ways to continue take turns. PYTHON is
an interpreter that has PyTorch; without it torchrun's rows are left out.

With --shares it prints the share of a step that merging takes instead: with `ordered`, which gives
the same bits on any number of workers, and with `naive`; and between processes, compared with
MPI_Allreduce.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from math import log10

import svg

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS, STEPS, WORKERS = 192, 100, 3
GRADIENT_BYTES = 516272
SECRET = "what all three of them know"
STAGES = ("start", "shard", "merge")  # before the step is committed
PATIENCE_S = 120


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Told:
    """The lines that several processes have printed so far: pairs of the time in nanoseconds and the text."""

    def __init__(self):
        self.lines, self.news = [], threading.Condition()

    def read(self, stream):
        for line in stream:
            when, _, rest = line.partition(" ")
            if when.isdigit():
                with self.news:
                    self.lines.append((int(when), rest.strip()))
                    self.news.notify_all()

    def listen(self, stream):
        threading.Thread(target=self.read, args=(stream,), daemon=True).start()

    def wait_for(self, test):
        """Waits for a line for which `test` returns true, and returns the first such line."""
        until, seen = time.monotonic() + PATIENCE_S, 0
        with self.news:
            while True:
                for entry in self.lines[seen:]:
                    if test(entry):
                        return entry
                seen = len(self.lines)
                if not self.news.wait(max(until - time.monotonic(), 0)):
                    raise SystemExit(f"recovery.py: nothing came in {PATIENCE_S} s: {self.lines[-3:]}")


def record(entry):
    return json.loads(entry[1]) if entry[1].startswith("{") else {}


def step_of(entry):
    """The number of the step that a line of Lockstep or PyTorch reports as done; 0: it reports no step."""
    if entry[1].startswith("{"):
        found = record(entry)
        return found["step"] if found["type"] == "step" else 0
    words = entry[1].split()
    return int(words[1]) if words[:1] == ["step"] else 0


def hash_of(entry):
    if entry[1].startswith("{"):
        return record(entry).get("weights_sha256")
    words = entry[1].split()
    return words[1] if words[:1] == ["end"] else None


def is_fault(entry):
    return record(entry).get("type") == "fault"


def is_pid(entry):
    return entry[1].startswith("pid ")


class Loss:
    """The results of one loss at the time `lost_ns`. Steps reported up to `new_ns` were done by the members before
    the loss, later ones by the remaining or restarted members."""

    def __init__(self, told, lost_ns, new_ns, expected):
        steps = sorted((entry[0], step_of(entry)) for entry in told.lines if step_of(entry))
        before = max((step for when, step in steps if when <= new_ns), default=0)
        behind = [(when, step) for when, step in steps if when > new_ns]
        self.seconds = (next(when for when, step in behind if step > before) - lost_ns) * 1e-9
        self.again = sum(step <= before for _, step in behind)
        self.same = [h for h in map(hash_of, told.lines) if h][-1] == expected


class Arrival:
    """The results of one admission: the time from the last step of the old members to the first step with the newcomer."""

    def __init__(self, told, expected):
        came_ns = next(entry[0] for entry in told.lines if record(entry).get("type") == "arrival")
        steps = sorted((entry[0], step_of(entry)) for entry in told.lines if step_of(entry))
        last_ns = max(when for when, _ in steps if when < came_ns)
        self.seconds = (next(when for when, _ in steps if when > came_ns) - last_ns) * 1e-9
        self.again = len(steps) - len({step for _, step in steps})
        self.same = [h for h in map(hash_of, told.lines) if h][-1] == expected


class Lockstep:
    def __init__(self, program, folder):
        self.program, self.folder, self.count = program, folder, 0
        config = json.loads((ROOT / "examples" / "fashion_mnist.json").read_text())
        config.update(data={"name": "synthetic", "limit": ROWS * STEPS}, batch_size=ROWS, shards=WORKERS, epochs=1, eval_every=0)
        (folder / "c.json").write_text(json.dumps(config))
        told = Told()
        self.start(told, "--set", "devices=cpu:1").wait()
        self.expected = hash_of(told.wait_for(hash_of))

    def start(self, told, *words):
        process = subprocess.Popen([self.program, "c.json", *words], cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        told.listen(process.stdout)
        return process

    def directory(self):
        self.count += 1
        return f"run-{self.count}"

    def worker(self, draw):
        """Loses a worker. The time of the loss is not known; the end of the step before the loss is used instead."""
        told, at = Told(), draw.randrange(10, STEPS - 10)
        fault = f"worker={draw.randrange(WORKERS)},step={at},kind=fail,stage={draw.choice(STAGES)}"
        self.start(told, "--set", f"devices=cpu:{WORKERS}", "--set", f"run_dir={self.directory()}", "--inject", fault).wait()
        told.wait_for(hash_of)
        lost_ns = told.wait_for(lambda entry: step_of(entry) == at - 1)[0]
        return Loss(told, lost_ns, told.wait_for(is_fault)[0], self.expected)

    def hosts(self, told, *words):
        """Starts a run with one process for each worker. The first process listens, and the others join it."""
        port, members = free_port(), ["--members", str(WORKERS), "--secret", SECRET, "--set", "devices=cpu:1", *words]
        return [self.start(told, *(["--listen", f"127.0.0.1:{port}"] if i == 0 else
                                   ["--join", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0"]), *members)
                for i in range(WORKERS)]

    def kill_one(self, draw, goes_on):
        told, at, directory = Told(), draw.randrange(10, STEPS - 10), self.directory()
        hosts = self.hosts(told, "--set", f"run_dir={directory}", "--set",
                           f"cluster.on_host_loss={'continue' if goes_on else 'stop'}")
        told.wait_for(lambda entry: step_of(entry) == at)
        time.sleep(draw.random() * 0.03)
        victim = draw.choice(hosts)
        lost_ns = time.monotonic_ns()
        victim.kill()
        for host in hosts:
            host.wait(PATIENCE_S)
        new_ns = time.monotonic_ns()
        if goes_on:
            new_ns = told.wait_for(is_fault)[0]  # the record is written when all remaining members are at the same step
        else:
            saved = directory if victim is not hosts[0] else next(p.name for p in self.folder.glob(f"{directory}.member-*"))
            for host in self.hosts(told, "--resume", saved):
                host.wait(PATIENCE_S)
        told.wait_for(hash_of)
        return Loss(told, lost_ns, new_ns, self.expected)

    def host_goes_on(self, draw):
        return self.kill_one(draw, True)

    def host_by_resume(self, draw):
        return self.kill_one(draw, False)

    def host_comes(self, _):
        """Admits a host at the end of the first epoch. The step before the last one of this epoch takes so long that the
        newcomer has connected before the epoch ends."""
        told, alone, port = Told(), Told(), free_port()
        epochs = ["--set", "epochs=2", "--set", f"data.limit={ROWS * STEPS // 2}", "--set", "devices=cpu:1"]
        self.start(alone, *epochs, "--set", f"run_dir={self.directory()}").wait()
        words = [*epochs, "--members", str(WORKERS - 1), "--secret", SECRET, "--set", "cluster.on_host_loss=continue", "--set",
                 "cluster.on_arrival=admit", "--set", f"run_dir={self.directory()}", "--inject",
                 f"worker=0,step={STEPS // 2 - 1},kind=stall,stage=shard,seconds=3", "--set", "deadline_s=20"]
        hosts = [self.start(told, *(["--listen", f"127.0.0.1:{port}"] if i == 0 else
                                    ["--join", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0"]), *words)
                 for i in range(WORKERS - 1)]
        told.wait_for(lambda entry: step_of(entry) == 1)
        hosts.append(self.start(told, "--join", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0", *words))
        for host in hosts:
            host.wait(PATIENCE_S)
        told.wait_for(hash_of)
        return Arrival(told, hash_of(alone.wait_for(hash_of)))

    def step_of_hosts(self):
        """The median time of a step of an undisturbed run over several processes, in milliseconds."""
        told = Told()
        for host in self.hosts(told, "--set", f"run_dir={self.directory()}"):
            host.wait(PATIENCE_S)
        told.wait_for(hash_of)
        at = [entry[0] for entry in told.lines if step_of(entry) > STEPS // 5]
        return statistics.median(b - a for a, b in zip(at, at[1:])) * 1e-6

    def share(self, algorithm, workers):
        """Two times in milliseconds: of merging in a step, without the wait for other workers, and of the whole step."""
        told = Told()
        self.start(told, "--set", f"devices=cpu:{workers}", "--set", f"allreduce={algorithm}", "--set", "run_dir=null",
                   "--set", "shards=2").wait()
        told.wait_for(hash_of)
        steps = [(entry[0], record(entry)) for entry in told.lines if step_of(entry) > STEPS // 5]
        whole = statistics.median(b[0] - a[0] for a, b in zip(steps, steps[1:])) * 1e-6
        merging = statistics.median(max(w["comm_exposed_s"] for w in s["workers"]) for _, s in steps) * 1e3
        return merging, whole


class Torch:
    def __init__(self, python, folder, every):
        self.python, self.folder, self.every, self.count = python, folder, every, 0
        twice = [Told(), Told()]
        for told in twice:
            self.run(told, lambda: None)
        self.expected, again = (hash_of(told.wait_for(hash_of)) for told in twice)
        self.repeats = again == self.expected

    def run(self, told, disturb):
        self.count += 1
        folder = self.folder / f"torch-{self.every}-{self.count}"
        folder.mkdir()
        os.mkfifo(folder / "told")
        told.listen(os.fdopen(os.open(folder / "told", os.O_RDWR), encoding="ascii"))
        # Processes that start again can find the old process's gloo address in the store: they fail, and torchrun starts
        # all again. With few restarts allowed, it then gives up.
        words = [self.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(WORKERS), "--max_restarts", "100",
                 "--monitor_interval", "0.1", "--redirects", "1", "--tee", "1", "--log_dir", folder / "log",
                 ROOT / "bench" / "peers" / "recovery_torch.py", "--steps", str(STEPS), "--rows", str(ROWS),
                 "--every", str(self.every), "--folder", folder, "--to", folder / "told"]
        process = subprocess.Popen(list(map(str, words)), env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        disturb()
        told.wait_for(hash_of)
        process.wait(PATIENCE_S)

    def __call__(self, draw):
        told, at, lost = Told(), draw.randrange(10, STEPS - 10), []

        def disturb():
            told.wait_for(lambda entry: step_of(entry) == at)
            time.sleep(draw.random() * 0.03)
            pids = [int(entry[1].split()[2]) for entry in told.lines if is_pid(entry)]
            lost.append(time.monotonic_ns())
            os.kill(draw.choice(pids), signal.SIGKILL)
        self.run(told, disturb)
        new_ns = told.wait_for(lambda entry: is_pid(entry) and entry[0] > lost[0])[0]
        return Loss(told, lost[0], new_ns, self.expected)


def version_of(python):
    return subprocess.run([python, "-c", "import torch; print(torch.__version__)"], check=True, stdout=subprocess.PIPE,
                          text=True).stdout.strip()


def row_of(name, losses):
    seconds, again = sorted(loss.seconds for loss in losses), [loss.again for loss in losses]
    return {"name": name, "losses": len(losses), "least_s": seconds[0], "median_s": statistics.median(seconds),
            "most_s": seconds[-1], "all_s": seconds, "again_median": statistics.median(again), "again_most": max(again),
            "same": sum(loss.same for loss in losses)}


def digits(seconds):
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def print_losses(rows):
    print("| lost, and how it goes on | times | to the next new step: median | least to most | steps again: median, most | weights of "
          "the undisturbed run |\n|---|---:|---:|---:|---:|---:|")
    for r in rows:
        print(f"| {r['name']} | {r['losses']} | {digits(r['median_s'])} | {digits(r['least_s'])} to {digits(r['most_s'])} | "
              f"{r['again_median']:g}, {r['again_most']} | {r['same']} of {r['losses']} |")


def draw_losses(rows):
    """Draws the times on a logarithmic scale."""
    low, width, left = 1e-3, 420, 190
    top = 10 ** (len(str(int(max(r["most_s"] for r in rows)))))

    def x(seconds):
        return left + width * log10(max(seconds, low) / low) / log10(top / low)
    height = 66 + 26 * len(rows)
    parts = [svg.text(12, 22, "From a loss to the next new step", kind="title")]
    mark = low
    while mark <= top * 1.001:
        parts += [svg.line(x(mark), 34, x(mark), height - 26, "grid"),
                  svg.text(x(mark), height - 10, digits(mark).replace(".0", ""), "middle")]
        mark *= 10
    for i, r in enumerate(rows):
        y = 40 + 26 * i
        parts += [svg.text(left - 8, y + 13, r["name"], "end", "strong"),
                  svg.box(left, y + 2, x(r["median_s"]) - left, 14, f"f{6 if 'torchrun' in r['name'] else 2}"),
                  svg.line(x(r["least_s"]), y + 9, x(r["most_s"]), y + 9, "whisker"),
                  svg.text(x(r["most_s"]) + 6, y + 13, digits(r["median_s"]))]
    return svg.picture(left + width + 80, height, parts, "Time from a loss to the next new step, by how the run goes on")


def measure_shares(lockstep, rounds):
    found = {}
    for k in range(rounds):
        for name in sorted(("ordered", "naive"), reverse=k % 2 == 0):
            found.setdefault(name, []).append(lockstep.share(name, 2))
    return [[f"`{name}`, two workers", *map(statistics.median, zip(*values))] for name, values in found.items()]


def measure_mpi(lockstep, program):
    """Over loopback, as bench/hosts.py does between namespaces."""
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", WORKERS, "--bind-to", "none", "--mca",
             "mpi_yield_when_idle", "1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", "--mca", "btl_tcp_flags",
             "send", "--mca", "btl_tcp_eager_limit", "1114112", program, GRADIENT_BYTES, WORKERS, "20"]
    done = subprocess.run(list(map(str, words)), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, timeout=PATIENCE_S)
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    step = lockstep.step_of_hosts()
    return [["`ordered`, three processes, over Open MPI", found["merge_s"] * 1e3, step],
            ["`MPI_Allreduce` of as many bytes", found["allreduce_s"] * 1e3, step]]


def measure_losses(lockstep, python, kills, draw, folder):
    """Rows of the table, and a line about PyTorch."""
    ways = {"a worker": lockstep.worker, "a host, going on": lockstep.host_goes_on, "a host, by resume": lockstep.host_by_resume,
            "a host that comes": lockstep.host_comes}
    torch = {f"torchrun, every {'step' if every == 1 else every}": Torch(python, folder, every) for every in (1, 10) if python}
    ways |= torch
    losses = {name: [] for name in ways}
    for k in range(kills):  # in turns
        for name, way in ways.items():
            losses[name].append(way(draw))
        print(f"{k + 1} of {kills}: " + ", ".join(f"{n} {digits(l[-1].seconds)}" for n, l in losses.items()), file=sys.stderr)
    about = python and (f"PyTorch {version_of(python)}: two undisturbed runs had "
                        f"{'the same' if all(t.repeats for t in torch.values()) else 'different'} weights.")
    return [row_of(name, values) for name, values in losses.items()], about


def load():
    return pathlib.Path("/proc/loadavg").read_text().split()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--shares", action="store_true", help="the share of a step that merging takes, and no losses")
    parser.add_argument("--python", help="an interpreter that has PyTorch")
    parser.add_argument("--mpi", type=pathlib.Path, help="bench_hosts, where Open MPI is")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--picture", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        lockstep = Lockstep(args.program.resolve(), folder)
        if args.shares:
            shares = measure_shares(lockstep, 5) + (measure_mpi(lockstep, args.mpi.resolve()) if args.mpi else [])
            print("| merging | ms | of a step of ms | share |\n|---|---:|---:|---:|")
            for name, merging, whole in shares:
                print(f"| {name} | {merging:.3f} | {whole:.2f} | {100 * merging / whole:.1f} % |")
            print(f"\nLeNet, {ROWS} rows a step, {os.cpu_count()} CPUs. Load after it: {load()}.")
            return
        rows, about = measure_losses(lockstep, args.python, args.kills, random.Random(args.seed), folder)
    print_losses(rows)
    print(f"\n{WORKERS} workers on {os.cpu_count()} CPUs, LeNet, {ROWS} rows a step. The time of a worker's loss is from the commit of "
          f"the step before. Load after it: {load()}.")
    if about:
        print(about)
    if args.json:
        args.json.write_text(json.dumps({"losses": rows}))
    if args.picture:
        args.picture.write_text(draw_losses(rows))


if __name__ == "__main__":
    main()
