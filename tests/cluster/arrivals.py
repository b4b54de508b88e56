#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""arrivals.py TRAINER [--cases N] [--first F] [--seed S] [--deadline S] [--links] [--at-once N]: hosts
come to a run and are lost.

Each host is a network namespace. A run over TCP begins on two or three hosts. Then hosts are lost
(killed, stopped, cut off, or killed at a stage of a step), and other hosts come; a lost host can
come again. In some cases a host is lost in the middle of an admission: the newcomer, the first host
or another host. Every host that was not lost must end with the weights of a run in one process. All
processes must end, and no incomplete file must remain. With --cases, N random schedules are run, numbers F to
F + N - 1 of seed S. Without --cases, a few fixed schedules are run.

With --links, a host comes whose links to some of the members are cut by a firewall (which drops or
resets): all subsets of three and of four members; before the host comes, in the middle of its
admission, or when it is a member. All members must go on, and the reason must be named. A link on
which only the members can connect does not count as cut. Without --links, a few of these cases are
run. Several cases take place at a time, each on hosts of its own, because they sleep most of their time.
Needs root, iproute2 and nftables; without them the test is skipped (77) with the reason.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import hosts

EPOCHS, PER_EPOCH = 10, 32
SPACES = 5  # largest number of hosts, one in each namespace
PATIENCE_S = 90
BEING_ADMITTED = "is being admitted"


class Host:
    """A process on host i; hosts are numbered from 1."""

    def __init__(self, test, i, join, number, wait_s, more):
        self.test, self.i, self.name = test, i, f"host-{i}-{number}"
        self.folder = test.folder / self.name
        self.folder.mkdir()
        self.lost = None  # how the host was lost: kill, stop or cut
        words = [test.program, test.folder / "c.json", "--devices", "cpu:1", "--listen", ":7070",
                 *(["--join", f"{hosts.NET}{join}:7070"] if join else []), "--members", test.count, "--secret",
                 test.folder / "secret", "--set", "run_dir=run", "--wait", wait_s, *test.pace, *more]
        self.log = self.folder / "log"
        space = test.spaces.space(i)
        command = f"hostname h{i}; exec " + " ".join(str(word) for word in words)
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(["ip", "netns", "exec", space, "unshare", "-u", "sh", "-c", command],
                                            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def said(self, text):
        return text in self.log.read_text(encoding="utf-8", errors="replace")

    def code(self):
        return self.process.poll()

    def records(self):
        found = []
        for path in sorted(self.folder.glob("run*/metrics.jsonl")):
            for line in path.read_text().split("\n")[:-1]:
                found.append(json.loads(line))
        return found


class Failure(Exception):
    pass


class Test:
    def __init__(self, program, spaces, folder, deadline_s):
        self.program, self.spaces, self.folder, self.deadline_s = program, spaces, folder, deadline_s
        self.all, self.members, self.count, self.expected = [], [], 0, None
        stalls = [f"worker=0,step={PER_EPOCH * e - 1},kind=stall,stage=shard,seconds=1.3" for e in range(1, EPOCHS)]
        self.pace = [word for stall in stalls for word in ("--inject", stall)]
        config = dict(hosts.CONFIG, epochs=EPOCHS, eval_every=3, deadline_s=60,
                      cluster={"on_host_loss": "continue", "on_arrival": "admit", "deadline_s": deadline_s})
        (folder / "c.json").write_text(json.dumps(config))
        (folder / "secret").write_bytes(os.urandom(32))
        (folder / "secret").chmod(0o600)

    def alone(self):
        subprocess.run([self.program, "c.json", "--quiet", "--devices", "cpu:1", "--set", "run_dir=alone"], cwd=self.folder,
                       check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
        last = (self.folder / "alone" / "metrics.jsonl").read_text().splitlines()[-1]
        self.expected = json.loads(last)["weights_sha256"]

    # ---- observations ----------------------------------------------------------------------------

    def wait(self, what, why, limit_s=PATIENCE_S):
        until = time.time() + limit_s
        while not what():
            if time.time() > until:
                raise Failure(f"in {limit_s} s: {why}")
            time.sleep(0.01)

    def step(self):
        return max((r["step"] for h in self.all for r in h.records() if r["type"] == "step"), default=0)

    def arrivals(self, i):
        """Returns how often host i was admitted. If the first host was lost, two hosts can have
        recorded the same arrival; such an arrival counts once."""
        found = {(r["host"], r["step"]) for h in self.all for r in h.records() if r["type"] == "arrival"}
        return sum(host.split("#")[0] == f"h{i}" for host, _ in found)

    # ---- events ----------------------------------------------------------------------------------

    def start(self, count):
        self.all, self.members, self.count = [], [], count
        for i in range(1, count + 1):
            self.add(i, 1 if i > 1 else None, PATIENCE_S)
            self.members.append(self.all[-1])

    def add(self, i, join, wait_s=8, more=()):
        self.all.append(Host(self, i, join, len(self.all), wait_s, more))
        return self.all[-1]

    def lose(self, host, how):
        if host in self.members:
            self.members.remove(host)
        host.lost = how
        pid = self.spaces.trainer_of(host.i, self.program)
        if pid is None:
            raise Failure(f"host {host.i} has no process to lose: it ended with {host.code()}")
        if how == "cut":
            self.spaces.cut(host.i, "down")
        else:
            os.kill(pid, signal.SIGSTOP if how == "stop" else signal.SIGKILL)

    def come(self, i, join, victim=None, delay_s=0.0):
        """Starts host i, which joins host `join`. If `victim` is given (a host, or "newcomer"),
        this host is lost in the middle of the admission."""
        before = self.arrivals(i)
        host = self.add(i, join)
        if victim is None:
            self.wait(lambda: self.arrivals(i) > before or host.code() is not None, f"host {i} was not admitted")
            if self.arrivals(i) > before:
                self.members.append(host)
            return
        self.wait(lambda: host.said(BEING_ADMITTED) or host.code() is not None, f"host {i} was not invited")
        time.sleep(delay_s)
        if host.code() is None:
            self.lose(host if victim == "newcomer" else victim, "kill")
            # The newcomer can be admitted at once, at the end of a later epoch, or not at all.
            if victim != "newcomer":
                self.wait(lambda: self.arrivals(i) > before or host.code() is not None, f"host {i} has no end")
                if self.arrivals(i) > before and host.code() is None:
                    self.members.append(host)

    def finish(self):
        """Waits for the end. The remaining members must end with 0 and the expected weights. Hosts
        that were stopped or cut off must notice their loss and exit with 75."""
        for host in self.members:
            self.wait(lambda h=host: h.code() is not None, f"host {host.i} does not end")
        for host in self.all:
            if host.lost == "stop":
                pid = self.spaces.trainer_of(host.i, self.program)
                if pid:
                    os.kill(pid, signal.SIGCONT)
        for host in self.all:
            self.wait(lambda h=host: h.code() is not None, f"host {host.i} has no end")
        for host in self.members:
            if host.code() != 0:
                raise Failure(f"host {host.i} ended with {host.code()}")
        for host in self.all:
            if host.lost in ("stop", "cut") and host.code() != 75:
                raise Failure(f"host {host.i}, {host.lost}, ended with {host.code()}")
            if not host.lost and host not in self.members and host.code() not in (0, 71, 75):
                raise Failure(f"host {host.i}, not admitted, ended with {host.code()}")
        ends = {r["weights_sha256"] for h in self.members for r in h.records() if r["type"] == "run_end"}
        if ends != {self.expected}:
            raise Failure(f"other weights, or none: {ends}")
        self.check_nothing_is_left()

    def check_nothing_is_left(self):
        for i in range(1, SPACES + 1):
            left = self.spaces.pids(self.spaces.space(i))
            if left:
                raise Failure(f"processes are left on host {i}: {left}")
        for path in self.folder.glob("host-*/run*/**/*.tmp*"):
            if not any(str(path).startswith(str(h.folder)) for h in self.all if h.lost == "kill"):
                raise Failure(f"{path} is left")

    def clear(self):
        self.spaces.mend_links()
        for i in range(1, SPACES + 1):
            self.spaces.cut(i, "up")
            for pid in self.spaces.pids(self.spaces.space(i)):
                os.kill(pid, signal.SIGKILL)
        for host in self.all:
            host.process.wait(10)
        for folder in self.folder.glob("host-*"):
            shutil.rmtree(folder)
        self.all, self.members = [], []

    def show(self):
        for host in self.all:
            print(f"--- host {host.i}, {host.lost or 'not lost'}, code {host.code()}")
            print(host.log.read_text(encoding="utf-8", errors="replace")[-3000:])


# ---- schedules ---------------------------------------------------------------------------------------


def able(members):
    """Returns the hosts whose loss the others survive. After such a loss, more than half of the
    hosts remain, or exactly half with the first host."""
    left = len(members) - 1
    return [h for h in members if 2 * left > len(members) or (2 * left == len(members) and h is not members[0])]


def draw_event(test, draw, said):
    free = [i for i in range(1, SPACES + 1) if all(h.i != i or (h.code() is not None and h.lost != "cut") for h in test.all)]
    may_come, may_go = bool(free) and len(test.members) < SPACES, able(test.members)
    if may_come and (not may_go or draw.random() < 0.6):
        i, join = draw.choice(free), draw.choice(test.members)
        victim = None
        if draw.random() < 0.5:
            # The first of two hosts must be lost only when the newcomer is a member. This test
            # cannot know when that is, so it does not choose the first of two.
            victims = ["newcomer", *[h for h in may_go if len(test.members) > 2 or h is not test.members[0]]]
            victim = draw.choice(victims)
        name = victim if victim in (None, "newcomer") else f"host {victim.i}"
        said.append(f"{i} comes to {join.i}" + (f", {name} is killed meanwhile" if name else ""))
        test.come(i, join.i, victim, draw.random() * 0.06)
    elif may_go:
        victim, how = draw.choice(may_go), draw.choice(("kill", "kill", "kill", "stop", "cut"))
        said.append(f"{victim.i}: {how}")
        test.lose(victim, how)


def random_case(test, draw, said):
    test.start(draw.choice((2, 3, 3)))
    said.append(f"{test.count} hosts")
    at = 0
    for _ in range(draw.randrange(1, 4)):
        at = max(at, test.step()) + draw.randrange(1, PER_EPOCH)
        if at >= PER_EPOCH * (EPOCHS - 3):
            break
        test.wait(lambda n=at: test.step() >= n, f"step {at} is not reached")
        draw_event(test, draw, said)
        # Three further steps show that the hosts that are left go on: the next loss is a new one.
        here = min(test.step() + 3, PER_EPOCH * EPOCHS)
        test.wait(lambda n=here: test.step() >= n, f"step {here} is not reached")
    test.finish()


printing = threading.Lock()


def guarded(test, name, case):
    said = []
    try:
        case(test, said)
    except Failure as why:
        with printing:
            print(f"FAILED: {name}: {'; '.join(said)}: {why}", flush=True)
            test.show()
        test.clear()
        return 1
    arrivals = sum(test.arrivals(i) for i in range(1, SPACES + 1))
    print(f"{name}: {'; '.join(said)}: {arrivals} admitted, same weights", flush=True)
    test.clear()
    return 0


def three_two_four(test, said):
    said.append("3, 2, 4 hosts")
    test.start(3)
    test.wait(lambda: test.step() >= PER_EPOCH // 2, "no step")
    test.lose(test.members[2], "kill")
    test.come(3, 1)
    test.come(4, 2)
    if len(test.members) != 4:
        raise Failure(f"{len(test.members)} hosts instead of 4")
    test.finish()


def first_in_the_middle(test, said):
    said.append("the first is lost in the middle of an admission")
    test.start(3)
    test.wait(lambda: test.step() >= 1, "no step")
    test.come(4, 2, test.members[0], 0.005)
    test.finish()


def newcomer_in_the_middle(test, said):
    said.append("the newcomer is lost in the middle of its admission")
    test.start(2)
    test.wait(lambda: test.step() >= 1, "no step")
    test.come(3, 1, "newcomer", 0.02)
    test.finish()


def refused(test, said):
    said.append("a host with another recipe is refused by name")
    test.start(2)
    test.wait(lambda: test.step() >= 1, "no step")
    host = test.add(3, 1, more=("--set", "seed=7"))
    test.wait(lambda: host.code() is not None, "it does not end")
    if host.code() == 0 or not host.said("another recipe") or not test.members[0].said("another recipe"):
        raise Failure("it was not refused by name on both sides")
    test.finish()


def linked(test, count, apart, how, when, said):
    """A host comes to `count` members, and its links to the members `apart` are cut."""
    new = count + 1
    said.append(f"{new} comes to {count} hosts, {how} {when} its admission: {new} and {', '.join(map(str, apart))}")
    begin = time.time()
    test.start(count)
    members = list(test.members)
    test.wait(lambda: test.step() >= 1, "no step")

    def cut():
        for i in apart:
            test.spaces.cut_link(new, i, how)

    if when == "before":
        cut()
    joins = next(i for i in range(1, new) if when != "before" or i not in apart)
    host = test.add(new, joins, wait_s=20)
    if when == "in":
        test.wait(lambda: host.said(BEING_ADMITTED) or host.code() is not None, f"host {new} was not invited")
        cut()
    elif when == "after" or how == "oneway":
        test.wait(lambda: test.arrivals(new) or host.code() is not None, f"host {new} was not admitted")
        if when == "after":
            cut()
    if how == "oneway":
        test.members.append(host)
    for member in members:
        test.wait(lambda h=member: h.code() is not None, f"host {member.i} does not end")
    took_s = time.time() - begin
    test.finish()
    failed = [r for h in members for r in h.records() if r["type"] == "failed_arrival"]
    if when == "before" and how != "oneway":
        missing = f"host h{new} and host{'s' if len(apart) > 1 else ''} {', '.join(f'h{i}' for i in apart)} do not reach each other"
        if not failed or any(missing not in r["error"] for r in failed):
            raise Failure(f"the records do not name the link: {failed}")
        if host.code() == 0 or not host.said(missing) or not members[0].said(missing):
            raise Failure("not both sides name the link")
    elif how == "oneway" and failed:
        raise Failure(f"it was not admitted at once: {failed}")
    said.append(f"{len(failed)} tries failed, the members took {took_s:.1f} s")


def link_cases(every):
    """Yields the arguments of `linked`."""
    if not every:
        yield from ((3, (2, 3), "drop", "before"), (3, (3,), "reset", "before"), (4, (2, 3, 4), "drop", "before"),
                    (3, (1,), "drop", "before"), (3, (3,), "drop", "in"), (3, (2, 3), "drop", "after"),
                    (3, (2,), "oneway", "before"))
        return
    for count in 3, 4:
        for size in range(1, count + 1):
            for apart in itertools.combinations(range(1, count + 1), size):
                for how, when in (*itertools.product(("drop", "reset"), ("before", "in", "after")), ("oneway", "before")):
                    if when != "before" or size < count:  # it must reach the member that it joins
                        yield count, apart, how, when


def all_cases(args):
    """Yields the name of each case and the function that plays it."""
    if not args.cases:
        for case in link_cases(args.links):
            yield "links", lambda test, said, c=case: linked(test, *c, said)
    if not args.cases and not args.links:
        for case in three_two_four, first_in_the_middle, newcomer_in_the_middle, refused:
            yield case.__name__, case
    for number in range(args.first, args.first + args.cases):
        draw = random.Random(f"{args.seed}-{number}")
        yield f"case {number} of seed {args.seed}", lambda test, said, d=draw: random_case(test, d, said)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", type=pathlib.Path)
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=2)
    parser.add_argument("--links", action="store_true", help="all cases of links that are cut")
    parser.add_argument("--at-once", type=int, default=4)
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.geteuid() != 0:
        hosts.skip("network namespaces are root's")
    for tool in ("ip", "unshare", "nft"):
        if not shutil.which(tool):
            hosts.skip(f"{tool} is missing: third_party/setup.sh hosts")
    cases = list(all_cases(args))
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(args.at_once))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        hosts.clean_environment(folder)
        free = queue.SimpleQueue()
        for i in range(args.at_once):
            place = pathlib.Path(folder, str(i))
            place.mkdir()
            test = Test(args.trainer.resolve(), stack.enter_context(hosts.Hosts(SPACES)), place, args.deadline)
            test.alone()
            free.put(test)

        def play(case):
            test = free.get()
            try:
                return guarded(test, *case)
            finally:
                free.put(test)

        failed = sum(pool.map(play, cases))
    if args.cases or args.links:
        print(json.dumps({"cases": len(cases), "failed": failed}))
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
