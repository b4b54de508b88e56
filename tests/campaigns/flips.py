#!/usr/bin/env python3
"""Damages what two hosts send each other, and checks that no damage changes the weights unnoticed.

Two processes train on this machine. The second one reaches the first through a relay, which does
one thing to the stream of one connection in one direction, at a random place: it flips a bit,
leaves out, adds, repeats or exchanges bytes, sends bytes back to where they come from, replays a
part of another connection or of an earlier run, or ends the connection. The place can be in a
hello, a proof, a note, a header, a gradient, a tag or a sign of life.

A run passes if both processes end, and if the weights are those of one process on one host whenever
the status is 0. With --continue the config says on_host_loss "continue".

    flips.py TRAINER --runs 300 [--seed N] [--continue] [--only KIND]
"""
import argparse
import collections
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

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
    """Forwards connections, and damages one of them as `plan` says: (kind, connection, direction,
    offset, random generator). Keeps the first bytes of every direction of every connection."""

    def __init__(self, upstream, plan=None, earlier=None):
        self.upstream, self.plan, self.earlier = upstream, plan, earlier
        self.streams = {}
        self.done = False
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
        if not self.plan or self.done or self.plan[1:3] != (number, direction):
            return data, b"", False
        kind, _, _, offset, rng = self.plan
        at = offset - position
        if not 0 <= at < len(data):
            return data, b"", False
        with self.lock:
            self.done = True
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


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def weights_of(directory):
    try:
        with open(os.path.join(directory, "run", "weights.safetensors"), "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()
    except OSError:
        return None


def run_pair(trainer, directory, plan=None, earlier=None):
    """Returns the two statuses (None: it did not end), the second's relay and what both printed."""
    for name in os.listdir(directory):
        if name.startswith("run"):
            shutil.rmtree(os.path.join(directory, name))
    port = free_port()
    relay = Relay(port, plan, earlier)
    common = [trainer, "c.json", "--quiet", "--members", "2", "--secret", "key", "--wait", "20"]
    places = [["--listen", f"127.0.0.1:{port}"],
              ["--join", f"127.0.0.1:{relay.port}", "--listen", "127.0.0.1:0"]]
    both = []
    for n, place in enumerate(places):
        out = open(os.path.join(directory, f"said{n}"), "w+")
        both.append((subprocess.Popen(common + place, cwd=directory, stdin=subprocess.DEVNULL,
                                      stdout=out, stderr=subprocess.STDOUT), out))
    statuses, said = [], []
    for process, out in both:
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


def make_plan(rng, kind, streams):
    """Chooses a connection and a direction, and a place: often in what is sent at first."""
    number, direction = rng.choice(sorted(streams))
    total = len(streams[number, direction])
    offset = rng.randrange(min(total, rng.choice([8, 700, 5000, total])))
    return kind, number, direction, offset, rng


def main():
    p = argparse.ArgumentParser()
    p.add_argument("trainer")
    p.add_argument("--runs", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--continue", dest="goes_on", action="store_true")
    p.add_argument("--only", choices=KINDS)
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    trainer = os.path.abspath(a.trainer)
    directory = tempfile.mkdtemp(prefix="flips")
    config = dict(CONFIG)
    if a.goes_on:
        config["cluster"] = {"deadline_s": 3, "on_host_loss": "continue"}
    with open(os.path.join(directory, "c.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(directory, "key"), "wb") as f:
        os.fchmod(f.fileno(), 0o600)
        f.write(os.urandom(32))
    subprocess.run([trainer, "c.json", "--quiet"], cwd=directory, check=True,
                   stdout=subprocess.DEVNULL)
    reference = weights_of(directory)
    statuses, relay, said = run_pair(trainer, directory)
    if statuses != [0, 0] or weights_of(directory) != reference:
        sys.exit(f"the undamaged run: {statuses} {said}")
    earlier = {key: bytes(s) for key, s in relay.streams.items()}
    outcomes, bad = collections.Counter(), 0
    for n in range(a.runs):
        rng = random.Random(a.seed * 1000003 + n)
        kind = a.only or (KINDS[n // 2 % len(KINDS)] if n % 2 else "flip")
        plan = make_plan(rng, kind, earlier)
        statuses, relay, said = run_pair(trainer, directory, plan,
                                         earlier if kind == "replay" and n % 4 == 1 else None)
        same = weights_of(directory) == reference
        changed = any("was changed on the way" in text for text in said)
        if None in statuses:
            verdict = "HANG"
        elif statuses[0] == 0 and not same:
            verdict = "WRONG WEIGHTS"
        elif any(s not in (0, 71, 74, 75) for s in statuses):
            verdict = f"STATUS {statuses}"
        elif any(s and not text.strip() for s, text in zip(statuses, said)):
            verdict = "NO WORD"
        else:
            verdict = None
        outcome = verdict or (f"{kind if relay.done else 'not reached'}: status {statuses[0]}, "
                              f"{statuses[1]}" + (", named" if changed else ""))
        outcomes[outcome] += 1
        bad += verdict is not None
        if verdict or a.verbose:
            print(f"run {n}: {outcome}: {plan[:4]} {said}", flush=True)
    shutil.rmtree(directory)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:5d}  {outcome}")
    print(json.dumps({"campaign": "flips", "seed": a.seed, "runs": a.runs, "violations": bad,
                      "outcomes": dict(sorted(outcomes.items()))}))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
