#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Damages what two hosts send each other, and checks that no damage changes the weights unnoticed.

Two processes train on this machine. The second one reaches the first through a relay, which does
one thing to the stream of one connection in one direction, at a random place: it flips a bit,
leaves out, adds, repeats or exchanges bytes, sends bytes back to where they come from, replays a
part of another connection or of an earlier run, or ends the connection. The place can be in a
hello, a proof, a note, a header, a gradient, a tag or a sign of life.

A run passes if both processes end, and if the weights are those of one process on one host whenever
the status is 0. With --continue the config says on_host_loss "continue", and a bit of a later
connection is flipped too: of the vote or of the new group. With --arrive two processes train
undisturbed, and a third one reaches the first through the relay and asks to be admitted. Then the
first two must end with status 0. (The exception are missing bytes: if they are the last ones that
are sent for a time, they look like a link that is stuck, and after the deadline all hosts stop.)

Several runs take place at a time, because most of a run that stops is the wait for a deadline.

    flips.py TRAINER --runs 300 [--seed N] [--continue | --arrive] [--only KIND] [--at-once N]
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import queue
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools"))
from free_port import free_port  # noqa: E402

KINDS = ["flip", "omit", "add", "repeat", "exchange", "reflect", "replay", "cut"]
HANG_S = 120  # a run takes about a second; this is the time after which it counts as a hang

CONFIG = {
    "data": {"name": "synthetic", "limit": 256},
    "batch_size": 32, "shards": 2, "epochs": 2, "eval_every": 1, "seed": 3,
    "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
    "devices": "cpu:1", "run_dir": "run", "cluster": {"deadline_s": 3},
    "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 10}]},
}


class Relay:
    """Forwards connections, and damages some of them as `plans` say, once for each plan: (kind,
    connection, direction, offset, random generator). Keeps the first bytes of every direction of
    every connection."""

    def __init__(self, upstream, plans=(), earlier=None):
        self.upstream, self.plans, self.earlier = upstream, list(plans), earlier
        self.streams = {}
        self.done = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        number = 0
        while True:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            try:
                listener = socket.create_connection(("127.0.0.1", self.upstream))
            except OSError:
                caller.close()  # the first process does not listen yet: the caller calls again
                continue
            for end in (caller, listener):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for direction, (a, b) in enumerate(((caller, listener), (listener, caller))):
                self.streams[number, direction] = bytearray()
                threading.Thread(target=self.pump, args=(a, b, number, direction),
                                 daemon=True).start()
            number += 1

    def pump(self, a, b, number, direction):
        seen = self.streams[number, direction]
        position = 0
        while True:
            try:
                data = a.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            if position < 1 << 20:
                seen += data
            data, back, cut = self.damage(data, position, number, direction)
            position += len(data)
            try:
                b.sendall(data)
                if back:
                    a.sendall(back)
            except OSError:
                break
            if cut:
                for end in (a, b):
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
                break
        try:
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def damage(self, data, position, number, direction):
        """Returns the data to be sent on and the data to be sent back, and whether to cut."""
        with self.lock:
            plan = next((p for p in self.plans if p[1:3] == (number, direction)
                         and 0 <= p[3] - position < len(data)), None)
            if not plan:
                return data, b"", False
            self.plans.remove(plan)
            self.done += 1
        kind, _, _, offset, rng = plan
        at = offset - position
        length = rng.choice([1, 4, 16, 40, 424, 1000])
        head, part, rest = data[:at], data[at:at + length], data[at + length:]
        if kind == "flip":
            return head + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:], b"", False
        if kind == "omit":
            return head + rest, b"", False
        if kind == "add":
            return head + rng.randbytes(length) + part + rest, b"", False
        if kind == "repeat":
            return head + part + part + rest, b"", False
        if kind == "exchange":
            return head + rest[:length] + part + rest[length:], b"", False
        if kind == "reflect":
            return data, part, False
        if kind == "replay":
            others = [s for key, s in sorted((self.earlier or self.streams).items())
                      if len(s) > offset and (self.earlier or key != (number, direction))]
            other = rng.choice(others)[offset:offset + len(part)] if others else rng.randbytes(4)
            return head + bytes(other) + data[at + len(other):], b"", False
        return head, b"", True


def weights_of(directory):
    try:
        with open(os.path.join(directory, "run", "weights.safetensors"), "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()
    except OSError:
        return None


def start(directory, trainer, name, *options):
    out = open(os.path.join(directory, f"said_{name}"), "w+")
    command = [trainer, "c.json", "--quiet", "--members", "2", "--secret", "key", "--wait", "20"]
    return subprocess.Popen([*command, *options], cwd=directory, stdin=subprocess.DEVNULL,
                            stdout=out, stderr=subprocess.STDOUT), out


def run_hosts(trainer, directory, arrives, plans=(), earlier=None):
    """Returns the statuses (None: a process did not end), the relay and what the processes printed.
    The last process has come through the relay."""
    for name in os.listdir(directory):
        if name.startswith("run"):
            shutil.rmtree(os.path.join(directory, name))
    port = free_port()
    relay = Relay(port, plans, earlier)
    through = ["--join", f"127.0.0.1:{relay.port}", "--listen", "127.0.0.1:0"]
    # the first step takes a second, so that the third process comes before the end
    stall = ["--inject", "worker=0,step=1,kind=stall,stage=start,seconds=1"] if arrives else []
    hosts = [start(directory, trainer, 0, "--listen", f"127.0.0.1:{port}", *stall)]
    if arrives:
        hosts.append(start(directory, trainer, 1, "--join", f"127.0.0.1:{port}", *through[2:]))
        while (not os.path.exists(os.path.join(directory, "run", "metrics.jsonl"))
               and hosts[0][0].poll() is None):
            time.sleep(0.01)
    hosts.append(start(directory, trainer, 2, *through))
    statuses, said = [], []
    for process, out in hosts:
        try:
            statuses.append(process.wait(HANG_S))
        except subprocess.TimeoutExpired:
            statuses.append(None)
            process.kill()
            process.wait()
        out.seek(0)
        said.append(out.read())
        out.close()
    relay.listener.close()
    return statuses, relay, said


def judge(statuses, said, same, arrives):
    """Returns what is wrong, or None."""
    if None in statuses:
        return "HANG"
    if statuses[0] == 0 and not same:
        return "WRONG WEIGHTS"
    if any(s not in (0, 71, 74, 75) for s in statuses):
        return f"STATUS {statuses}"
    if any(s and not text.strip() for s, text in zip(statuses, said)):
        return "NO WORD"
    stuck = any("nothing has come or gone" in text for text in said)
    return "LOST BY A NEWCOMER" if arrives and not stuck and statuses[:2] != [0, 0] else None


def make_plan(rng, kind, streams):
    """Chooses a connection and a direction, and a place: often in what is sent at first."""
    number, direction = rng.choice(sorted(streams))
    total = len(streams[number, direction])
    offset = rng.randrange(min(total, rng.choice([8, 700, 5000, total])))
    return kind, number, direction, offset, rng


def furnish(directory, config, secret):
    with open(os.path.join(directory, "c.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(directory, "key"), "wb") as f:
        os.fchmod(f.fileno(), 0o600)
        f.write(secret)


def damaged_run(a, trainer, directory, n, reference, earlier):
    """Makes run n. Returns its outcome, whether it is a violation, and a line that describes the run."""
    rng = random.Random(a.seed * 1000003 + n)
    kind = a.only or (KINDS[n // 2 % len(KINDS)] if n % 2 else "flip")
    plans = [make_plan(rng, kind, earlier)]
    if a.goes_on and n % 2:
        plans.append(("flip", 4 + rng.randrange(6), rng.randrange(2), rng.randrange(2000), rng))
    statuses, relay, said = run_hosts(trainer, directory, a.arrive, plans,
                                      earlier if kind == "replay" and n % 4 == 1 else None)
    changed = any("was changed on the way" in text for text in said)
    verdict = judge(statuses, said, weights_of(directory) == reference, a.arrive)
    outcome = verdict or (f"{kind}: " * (relay.done > 0) + f"damaged {relay.done} times, status "
                          + ", ".join(map(str, statuses)) + ", named" * changed)
    return outcome, verdict is not None, f"run {n}: {outcome}: {[plan[:4] for plan in plans]} {said}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("trainer")
    p.add_argument("--runs", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--continue", dest="goes_on", action="store_true")
    p.add_argument("--arrive", action="store_true")
    p.add_argument("--only", choices=KINDS)
    p.add_argument("--at-once", type=int, default=4)
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    trainer = os.path.abspath(a.trainer)
    folder = tempfile.mkdtemp(prefix="flips")
    free = queue.SimpleQueue()  # folders of runs
    config = dict(CONFIG)
    if a.goes_on or a.arrive:
        config["cluster"] = {"deadline_s": 3, "on_host_loss": "continue"}
    if a.arrive:
        config["cluster"]["on_arrival"] = "admit"
        config["shards"] = 4
        config["epochs"] = 6
    secret = os.urandom(32)
    for i in range(a.at_once):
        directory = os.path.join(folder, str(i))
        os.mkdir(directory)
        furnish(directory, config, secret)
        free.put(directory)
    subprocess.run([trainer, "c.json", "--quiet"], cwd=directory, check=True,
                   stdout=subprocess.DEVNULL)
    reference = weights_of(directory)
    statuses, relay, said = run_hosts(trainer, directory, a.arrive)
    if any(statuses) or weights_of(directory) != reference:
        sys.exit(f"the undamaged run: {statuses} {said}")
    earlier = {key: bytes(s) for key, s in relay.streams.items()}

    def run(n):
        directory = free.get()
        try:
            return damaged_run(a, trainer, directory, n, reference, earlier)
        finally:
            free.put(directory)

    outcomes, bad = collections.Counter(), 0
    with concurrent.futures.ThreadPoolExecutor(a.at_once) as pool:
        for outcome, violation, line in pool.map(run, range(a.runs)):
            outcomes[outcome] += 1
            bad += violation
            if violation or a.verbose:
                print(line, flush=True)
    shutil.rmtree(folder)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:5d}  {outcome}")
    print(json.dumps({"campaign": "flips", "seed": a.seed, "runs": a.runs, "violations": bad,
                      "outcomes": dict(sorted(outcomes.items()))}))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
