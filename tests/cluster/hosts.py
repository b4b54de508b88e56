#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""hosts.py TRAINER [--deadline S]: trains on several hosts, each a network namespace of this
machine, by mpirun.

The weights must be the same on 1, 2 and 3 hosts. If a member (the first one included) is killed,
stopped or disconnected, every other process must save and exit with 75, within the deadline and
2 s. Each saved run must continue on another number of hosts, and end with the weights of a run
without faults. A signal to one process, or to mpirun, must stop all processes after the same step.
--grid tries 1 to 4 hosts × 1 to 3 workers × shards 7, 8, 12, 24. --cases N tries N random faults.
--tcp uses the TCP transport. Needs root, iproute2 and, except with --tcp, Open MPI's mpirun, and
liblockstep-mpi.so in the program's folder; without these the test is skipped (77) with the reason.
The test removes everything that it creates.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

NET = "10.77.0."
EPOCHS = 16  # enough steps for a fault in the middle of a run
CONFIG = {
    "data": {"name": "synthetic", "limit": 2048}, "batch_size": 64, "shards": 8, "epochs": EPOCHS, "eval_every": 8,
    "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}, "init": "xavier",
    "model": {"layers": [
        {"type": "avg_pool", "kernel": 2}, {"type": "conv2d", "out": 8, "kernel": 5}, {"type": "batch_norm"},
        {"type": "relu"}, {"type": "flatten"}, {"type": "dense", "out": 10}]}}
STEPS = 2048 // 64 * EPOCHS
PATIENCE_S = 120  # longest time for a whole run, on a busy machine
SLACK_S = 15  # added to a deadline because the machine can be busy; campaigns (--cases) add none
STAGES = ("start", "shard", "merge", "apply", "report")


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def ip(*words):
    done = subprocess.run(["ip", *words], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stdout.strip()}")


def clean_environment(scratch):
    """Removes the variables that configure MPI. MPI's temporary files go to `scratch`."""
    for name in list(os.environ):
        if name.startswith(("OMPI_", "PMI", "PRTE_", "SLURM_", "HYDRA_", "MPI")):
            del os.environ[name]
    os.environ.update(HOME=str(scratch), TMPDIR=str(scratch), RES_OPTIONS="timeout:1 attempts:1")


class Hosts:
    """Namespaces NAME1 … NAMEn, connected by a bridge in NAMEbr, or by a relay if `by` is given."""

    def __init__(self, count, by=None):
        self.name = f"lst{os.getpid()}-{secrets.token_hex(2)}{'r' if by else 'h'}"  # unique
        self.count, self.by = count, by
        self.made, self.relay = [], None

    def space(self, i):
        return f"{self.name}{i}"

    def add(self, space):
        ip("netns", "add", space)
        self.made.append(space)
        ip("-n", space, "link", "set", "lo", "up")

    def __enter__(self):
        bridge = self.space("br")
        try:
            self.add(bridge)
            if not self.by:
                ip("-n", bridge, "link", "add", "br0", "type", "bridge")
                ip("-n", bridge, "link", "set", "br0", "up")
            for i in range(1, self.count + 1):
                self.add(self.space(i))
                ip("link", "add", "e0", "netns", self.space(i), "type", "veth", "peer", "name", f"p{i}", "netns", bridge)
                ip("-n", bridge, "link", "set", f"p{i}", *([] if self.by else ["master", "br0"]), "up")
                ip("-n", self.space(i), "addr", "add", f"{NET}{i}/24", "dev", "e0")
                ip("-n", self.space(i), "link", "set", "e0", "up")
            if self.by:
                ports = [f"p{i}" for i in range(1, self.count + 1)]
                self.relay = subprocess.Popen(["ip", "netns", "exec", bridge, *self.by, *ports])
        except OSError as why:
            self.__exit__()
            skip(f"no network namespaces can be made: {why}")
        return self

    def __exit__(self, *_):
        if self.relay:
            self.relay.kill()
            self.relay.wait()
        for space in self.made:
            for pid in self.pids(space):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", space], check=False)
        self.made = []

    def cut(self, i, state):
        ip("-n", self.space("br"), "link", "set", f"p{i}", state)

    def split(self, others):
        """Lets these hosts reach only each other. An empty list lets all hosts reach each other."""
        bridge = self.space("br")
        subprocess.run(["ip", "-n", bridge, "link", "add", "br1", "type", "bridge"], check=False, stderr=subprocess.DEVNULL)
        ip("-n", bridge, "link", "set", "br1", "up")
        for i in range(1, self.count + 1):
            ip("-n", bridge, "link", "set", f"p{i}", "master", "br1" if i - 1 in others else "br0")

    def cut_link(self, a, b, how):
        """Cuts the link between the hosts a and b. `how`: "drop" loses all packets, "reset" answers
        them as a host does on which no program listens, "oneway" does not let a connect to b."""
        word = {"drop": "drop", "reset": "reject with tcp reset", "oneway": "tcp flags syn / syn,ack drop"}[how]
        for here, there in (b, a), *([] if how == "oneway" else [(a, b)]):
            rules = (f"add table ip cut; add chain ip cut in {{ type filter hook input priority 0; }}; "
                     f"add rule ip cut in ip protocol tcp ip saddr {NET}{there} {word}")
            ip("netns", "exec", self.space(here), "nft", rules)

    def mend_links(self):
        for i in range(1, self.count + 1):
            ip("netns", "exec", self.space(i), "nft", "add table ip cut; delete table ip cut")

    def pids(self, space):
        out = subprocess.run(["ip", "netns", "pids", space], stdout=subprocess.PIPE, text=True, check=False).stdout
        return [int(word) for word in out.split()]

    def trainer_of(self, i, program):
        """Returns the process that trains on host i, or None."""
        for pid in self.pids(self.space(i)):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/exe") == str(program):
                    return pid
        return None


class Run:
    """A job of one process on each of the first `count` hosts."""

    def __init__(self, test, count, words):
        self.test, self.count = test, count
        for old in test.scratch.glob("code.*"):
            old.unlink()
        if test.tcp:
            self.start(test, self.of_tcp(test, words))
            return
        # MPICH's launcher ends processes that go on after MPI_Finalize, as the script would.
        member = "" if test.mpich else f"{test.scratch}/member"
        command = f"hostname {test.hosts.space(1)}; exec {test.launch(count)} {member} {test.program} {' '.join(words)}"
        self.start(test, command)

    def of_tcp(self, test, words):
        """Returns a command that starts one process on each host. The first host listens."""
        join = f"--join {NET}1:7070 --members {self.count} --secret secret"
        one = f"{test.scratch}/member {test.program} {' '.join(words)} {join}"
        others = "".join(f"OMPI_COMM_WORLD_RANK={i - 1} {test.scratch}/agent {NET}{i} {one} & "
                         for i in range(2, self.count + 1))
        return f"hostname {test.hosts.space(1)}; OMPI_COMM_WORLD_RANK=0 {one} & {others} wait"

    def start(self, test, command):
        self.log = open(test.scratch / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", test.hosts.space(1), "unshare", "-u", "sh", "-c", command],
            cwd=test.scratch, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def codes(self):
        """Returns {rank: (exit code, time)} of the members that have ended."""
        found = {}
        for path in self.test.scratch.glob("code.*"):
            text = path.read_text().split()
            if len(text) == 2:
                found[int(path.suffix[1:])] = (int(text[0]), float(text[1]))
        return found

    def wait_for(self, what, limit_s):
        """Waits until what() is true; after the launcher's end, at most deadline_s + SLACK_S."""
        until, ended = time.time() + limit_s, False
        while not what():
            if self.process.poll() is not None and not ended:
                ended, until = True, min(until, time.time() + self.test.deadline_s + SLACK_S)
            if time.time() > until:
                self.fail(f"{'the launcher has ended' if ended else f'nothing came of it in {limit_s:.0f} s'}")
            time.sleep(0.02)

    def trainer_of(self, member):
        """Returns the process of a member. Fails if there is none."""
        pid = self.test.hosts.trainer_of(member + 1, self.test.program)
        return pid or self.fail("there is no process to disturb")

    def end(self, limit_s=2):
        """Kills all remaining processes: mpirun can hang after a link was cut."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(limit_s)
        for i in range(1, self.test.hosts.count + 1):
            for pid in self.test.hosts.pids(self.test.hosts.space(i)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        self.log.close()

    def fail(self, why):
        print((self.test.scratch / "log").read_text())
        print("codes", self.codes(), "launcher", self.process.poll())
        for path in sorted(self.test.scratch.glob("*/metrics.jsonl")):
            records = path.read_text().splitlines()
            print(path.parent.name, len(records), "records", *records[-1:])
        for i in range(1, self.test.hosts.count + 1):
            for pid in self.test.hosts.pids(self.test.hosts.space(i)):
                with contextlib.suppress(OSError):
                    words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                    print("on host", i, pid, pathlib.Path(f"/proc/{pid}/wchan").read_text(), words[:150])
        raise SystemExit(f"FAILED: {why}")


class Test:
    def __init__(self, program, hosts, scratch, deadline_s, tcp):
        self.program, self.hosts, self.scratch, self.deadline_s = program, hosts, scratch, deadline_s
        self.tcp = tcp
        self.mpich = None  # path of MPICH's mpirun; None: Open MPI's, or no launcher
        self.patience_s = PATIENCE_S
        self.expected = None
        self.slack_s = SLACK_S

    def prepare(self):
        CONFIG.update(cluster={"deadline_s": self.deadline_s}, deadline_s=60)  # workers can be slow
        (self.scratch / "c.json").write_text(json.dumps(CONFIG))
        (self.scratch / "secret").write_bytes(os.urandom(32))
        (self.scratch / "secret").chmod(0o600)
        self.script("agent", f'while [ "${{1#-}}" != "$1" ]; do shift; done\nh={self.hosts.name}${{1##*.}}; shift\n'
                    f'name=$h; boot={self.scratch}/boot\n[ ! -e {self.scratch}/name ] || name=$(cat {self.scratch}/name)\n'
                    'exec ip netns exec "$h" unshare -um sh -c "[ ! -e $boot ] || mount --bind $boot '
                    '/proc/sys/kernel/random/boot_id; hostname $name; $*"\n')
        self.script("member", 'trap "" USR1\nrank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\nfile=code.$rank\n'
                    'if [ -e "inject.$rank" ]; then set -- "$@" --inject "$(cat "inject.$rank")"; fi\n"$@"\necho "$? $(date +%s.%N)" >"new.$file"\n'
                    'mv "new.$file" "$file"\nread -r code rest <"$file"\nexit "$code"\n')

    def script(self, name, text):
        path = self.scratch / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def launch(self, count):
        hosts = ",".join(f"{NET}{i}" for i in range(1, count + 1))
        if self.mpich:
            return (f"{self.mpich} -n {count} -ppn 1 -hosts {hosts} -launcher rsh -launcher-exec {self.scratch}/agent "
                    "-bind-to none -disable-auto-cleanup -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES e0")
        return ("mpirun --allow-run-as-root -N 1 --bind-to none "  # see docs/clusters.md
                f"--enable-recovery -H {hosts} "
                f"--mca plm_rsh_agent {self.scratch}/agent --mca btl tcp,self --mca btl_tcp_if_include e0 "
                f"--mca oob_tcp_if_include e0 --mca orte_tmpdir_base {self.scratch}")

    @staticmethod
    def slowly(at):
        """Returns options that slow four steps after `at`, so that a fault comes in one of them."""
        steps = [min(at + 8 * k, STEPS) for k in range(1, 5)]
        return [word for step in steps for word in ("--inject", f"worker=0,step={step},kind=stall,stage=shard,seconds=0.5")]

    @staticmethod
    def shown(at):
        """Returns options that make step `at` so long (over 1 s) that it is recorded at once."""
        return ["--inject", f"worker=0,step={at},kind=stall,stage=shard,seconds=1.1"]

    def words(self, directory, resume=None, workers=1, devices=None):
        words = ["c.json", "--devices", devices or f"cpu:{workers}", "--quiet", "--set", f"run_dir={directory}"]
        return words + (["--resume", resume] if resume else [])

    def hash_of(self, directory):
        for line in reversed((self.scratch / directory / "metrics.jsonl").read_text().splitlines()):
            record = json.loads(line)
            if record["type"] == "run_end":
                return record["weights_sha256"]
        raise SystemExit(f"FAILED: {directory} has no end")

    def alone(self, directory="alone", more=()):
        subprocess.run([self.program, *self.words(directory), *more], cwd=self.scratch, check=True, timeout=self.patience_s,
                       stdout=subprocess.DEVNULL)
        self.expected = self.hash_of(directory)

    def whole(self, count, directory, resume=None, workers=1, more=(), devices=None):
        run = Run(self, count, [*self.words(directory, resume, workers, devices), *more])
        if self.mpich:
            run.wait_for(lambda: run.process.poll() is not None, self.patience_s)
        else:
            run.wait_for(lambda: len(run.codes()) == count, self.patience_s)
        # MPICH's launcher can write to a proxy that has ended.
        fine = (0, -signal.SIGPIPE) if self.mpich else (0, None)
        if any(code for code, _ in run.codes().values()) or run.process.poll() not in fine:
            run.fail("a member failed")
        run.end(SLACK_S)
        if self.hash_of(directory) != self.expected:
            run.fail(f"{count} hosts have other weights")
        print(f"{'resumed' if resume else 'whole'} on {count} × {workers}: same weights", *more, flush=True)

    def steps(self, directory):
        path = self.scratch / directory / "metrics.jsonl"
        return path.read_text().count('"type":"step"') if path.exists() else 0

    def grid(self, most, example, all_shards, all_workers):
        """Compares the weights of 1 to `most` hosts. Without an example: this test's network, one
        epoch. With an example: LeNet for 1,000 steps or ResNet-18 for 20."""
        more = ["--set", "epochs=1"]
        if example:
            self.patience_s = 10 * PATIENCE_S
            config = json.loads(example.read_text())
            config["model"] = config["model"] if isinstance(config["model"], dict) else str(example.parent / config["model"])
            steps = 20 if "resnet" in example.name else 1000
            config.update(data={"name": "synthetic", "limit": 64 * min(steps, 200)}, batch_size=64, eval_every=0,
                          epochs=max(1, steps // 200), cluster={"deadline_s": 60})
            (self.scratch / "c.json").write_text(json.dumps(config))
        for shards in all_shards:
            words = ["--set", f"shards={shards}", *([] if example else more)]
            self.alone(f"alone-{shards}", words)
            print(f"{example.stem if example else 'small'}, {shards} shards: {self.expected}", flush=True)
            for count in range(1, most + 1):
                for workers in all_workers:
                    if count * workers <= shards:
                        self.whole(count, f"grid-{shards}-{count}-{workers}", workers=workers, more=words)
                        shutil.rmtree(self.scratch / f"grid-{shards}-{count}-{workers}")

    def sent(self, i):
        out = subprocess.run(["ip", "-n", self.hosts.space(i), "-s", "-j", "link", "show", "e0"], check=True,
                             stdout=subprocess.PIPE).stdout
        return json.loads(out)[0]["stats64"]["tx"]["bytes"]

    def bytes_of_step(self, count, shards):
        """Returns the most bytes that a host sends in a step, divided by the arena's bytes."""
        model = {"layers": [{"type": "flatten"}, {"type": "dense", "out": 512}, {"type": "relu"}, {"type": "dense", "out": 10}]}
        (self.scratch / "model.json").write_text(json.dumps(model))
        sent = []
        for epochs in 1, 4:
            before = [self.sent(i + 1) for i in range(count)]
            more = [f"--set model=model.json --set eval_every=0 --set epochs={epochs} --set shards={shards}"]
            run = Run(self, count, [*self.words(f"bytes-{count}-{shards}-{epochs}"), *more])
            run.wait_for(lambda r=run: len(r.codes()) == count, PATIENCE_S)
            run.end()
            sent.append([self.sent(i + 1) - b for i, b in enumerate(before)])
        arena = 4 * (784 * 512 + 512 + 512 * 10 + 10)
        return max(b - a for a, b in zip(*sent)) / (3 * STEPS / EPOCHS) / arena

    def measure_bytes(self):
        """Compares the bytes of a step with the formula k (1 − f) + (H − 1) f, f = 1 / H, for H
        hosts. k is the number of tree nodes of the host that sends most (src/cluster/cluster.h)."""
        for count, shards, nodes in (2, 8, 1), (2, 7, 1), (3, 12, 1), (3, 8, 2), (4, 8, 1):
            formula = (nodes + 1) * (count - 1) / count
            found = self.bytes_of_step(count, shards)
            print(f"{count} hosts, {shards} shards: {found:.3f} arenas a step, formula {formula:.3f}", flush=True)
            if found > formula * 1.05:
                raise SystemExit("FAILED: more than the formula and 5 %")

    def clear(self):
        """Removes what a failed case has left: links that are down, and processes."""
        for i in range(1, self.hosts.count + 1):
            self.hosts.cut(i, "up")
            for pid in self.hosts.pids(self.hosts.space(i)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def use(self, hosts):
        """Uses these hosts from now on."""
        self.hosts = hosts
        self.prepare()

    def cases(self, number, seed, networks):
        """Runs cases with random faults on `networks`, {name: hosts}. Returns how many failed."""
        draw, self.slack_s = random.Random(seed), 0
        counts = {"cases": 0, "failed": 0}
        for case in range(number):
            network, count = draw.choice(list(networks)), draw.choice((2, 3))
            how = draw.choice(("kill", "kill", "stop", "cut", "mend", *STAGES))
            victim, at = draw.randrange(count), draw.randrange(1, STEPS // 2)
            again = draw.choice((1, 2, 3))
            self.use(networks[network])
            print(f"{case}, {network}: ", end="")
            keys = ["cases", network, "stage" if how in STAGES else how, *(["first host"] if victim == 0 else [])]
            try:
                self.disturbed(count, victim, how, at, again, f"case-{case}", draw)
            except SystemExit as why:
                if why.code == 143:  # SIGTERM: this program must end, not only the case
                    raise
                print(why, f"(case {case} of seed {seed})", flush=True)
                keys.append("failed")
                self.clear()
            for key in keys:
                counts[key] = counts.get(key, 0) + 1
            for old in self.scratch.glob("case-*"):
                shutil.rmtree(old)
        print(json.dumps(counts))
        return counts["failed"]

    def interrupted(self, count, victim, again):
        """Asks host `victim` (from 0; −1: mpirun) to stop. All must stop; the first must save."""
        directory = f"interrupted-{victim}"
        run = Run(self, count, self.words(directory) + self.slowly(STEPS // 8))
        run.wait_for(lambda: self.steps(directory) >= STEPS // 8, PATIENCE_S)
        if victim < 0:
            run.process.send_signal(signal.SIGUSR1)
        else:
            os.kill(run.trainer_of(victim), signal.SIGTERM)
        run.wait_for(lambda: len(run.codes()) == count, PATIENCE_S)
        if any(code != 75 for code, _ in run.codes().values()):
            run.fail("a member did not end with 75")
        run.end(SLACK_S)
        print(f"interrupted {'mpirun' if victim < 0 else victim} of {count}: all have stopped")
        self.whole(again, directory, directory)

    def namesakes(self):
        """Two processes on one host must be refused, but not two hosts with the same name."""
        name, boot = self.scratch / "name", self.scratch / "boot"
        name.write_text(self.hosts.space(1))
        run = Run(self, 2, ["c.json", "--quiet", "--set", "run_dir=twice"])
        run.wait_for(lambda: len(run.codes()) == 2, PATIENCE_S)
        run.end(SLACK_S)
        said = (self.scratch / "log").read_text()
        if any(code != 71 for code, _ in run.codes().values()) or "two processes on host" not in said:
            run.fail("two processes on one host were not refused")
        boot.write_text("7c9e1d52-0000-4000-8000-1b2f0a4c6e11\n")
        self.whole(2, "namesakes", devices="auto")
        name.unlink()
        boot.unlink()

    def paused(self, count, directory="paused"):
        """All processes are stopped for longer than the deadline. No member must be lost."""
        run = Run(self, count, self.words(directory) + self.slowly(STEPS // 4))
        run.wait_for(lambda: self.steps(directory) >= STEPS // 4, PATIENCE_S)
        pids = [run.trainer_of(i) for i in range(count)]
        for what in signal.SIGSTOP, signal.SIGCONT:
            for pid in pids:
                os.kill(pid, what)
            time.sleep(self.deadline_s + 1 if what == signal.SIGSTOP else 0)
        run.wait_for(lambda: len(run.codes()) == count, PATIENCE_S)
        if any(code for code, _ in run.codes().values()) or self.hash_of(directory) != self.expected:
            run.fail("a pause of all was not survived")
        run.end()
        print(f"a pause of all {count}: same weights")

    def mended(self, run, count, victim, directory):
        """A link is cut for less than the deadline. The weights must stay the same."""
        self.hosts.cut(victim + 1, "down")
        time.sleep(self.deadline_s / 4)
        self.hosts.cut(victim + 1, "up")
        run.wait_for(lambda: len(run.codes()) == count, PATIENCE_S)
        codes = {code for code, _ in run.codes().values()}
        run.end()
        if codes == {75}:  # TCP has waited longer than the deadline before it sent again
            print(f"mend {victim} of {count}: saved", flush=True)
            self.whole(count, directory, directory)
        elif codes != {0} or self.hash_of(directory) != self.expected:
            run.fail("a short cut was not survived")
        print(f"mend {victim} of {count}: same weights", flush=True)

    def survive(self, short):
        self.goes_on(3, [(1, "kill", STEPS // 3)], "kill")
        self.goes_on(3, [(0, "merge", STEPS // 4), (2, "kill", STEPS // 2)], "first")
        self.goes_on(3, [(2, "stop", STEPS // 4)], "stop")
        if not short:
            for victim in range(3):
                for stage in STAGES:
                    self.goes_on(3, [(victim, stage, STEPS // 4)], f"{stage}-{victim}")
            self.goes_on(3, [(1, "cut", STEPS // 3)], "cut")
            self.goes_on(3, [(0, "cut", STEPS // 3)], "cut-first")
            self.goes_on(3, [(2, "kill", 1), (1, "cut", STEPS // 3)], "one-left")
            self.parted([1, 2, 3], [1, 2, 3])
        self.parted([2, 3], [0, 1])

    def last_step(self, directory):
        path = self.scratch / directory / "metrics.jsonl"
        records = path.read_text().split("\n")[:-1] if path.exists() else []
        steps = [json.loads(r)["step"] for r in records if '"type":"step"' in r]
        if steps != list(range(steps[0], steps[0] + len(steps)) if steps else []):
            raise SystemExit(f"FAILED: {directory} has steps twice, or not all of them")
        return steps[-1] if steps else 0

    def strike(self, run, victim, how, at):
        """Inflicts the fault `how` on host `victim`, and returns its process. If `how` is a stage
        of a step, the host stalls there in step `at` + 1, and is killed meanwhile."""
        if how in STAGES:
            time.sleep(0.3)
        pid = run.trainer_of(victim)
        if how == "cut":
            self.hosts.cut(victim + 1, "down")
        elif how == "split":
            self.hosts.split(at)
        else:
            os.kill(pid, signal.SIGSTOP if how == "stop" else signal.SIGKILL)
        return pid

    def goes_on(self, count, losses, directory, draw=None):
        """`losses`: [(host, how, after which step)]. The others must end with the same weights."""
        run_words = [*self.words(directory), "--set", "cluster.on_host_loss=continue"]
        for _, how, at in losses:
            run_words += self.shown(at) if draw or how in STAGES else self.slowly(at)
        for victim, how, at in losses:
            if how in STAGES:
                (self.scratch / f"inject.{victim}").write_text(f"worker=0,step={at + 1},kind=stall,stage={how},seconds=60")
        run = Run(self, count, run_words)
        left, first, stopped, slowest = list(range(count)), directory, [], 0
        for victim, how, at in losses:
            run.wait_for(lambda d=first, n=at: self.last_step(d) >= max(n, 1), PATIENCE_S)
            if draw and how not in STAGES:
                time.sleep(draw.random() * 0.02)
            pid = self.strike(run, victim, how, at)
            begin = time.time()
            left.remove(victim)
            first = directory if left[0] == 0 else f"{directory}.member-{left[0]}"
            before = self.last_step(first)
            run.wait_for(lambda d=first, n=max(before, at) + 1: self.last_step(d) > n or left[0] in run.codes(), PATIENCE_S)
            slowest = max(slowest, time.time() - begin)
            if how == "stop":
                stopped.append((victim, pid))
            if how == "cut":
                run.wait_for(lambda v=victim: v in run.codes(), PATIENCE_S)
        run.wait_for(lambda: all(m in run.codes() for m in left), PATIENCE_S)
        for victim, pid in stopped:  # each must notice that the others have gone on
            os.kill(pid, signal.SIGCONT)
            run.wait_for(lambda v=victim: v in run.codes(), PATIENCE_S)
        codes = {m: code for m, (code, _) in run.codes().items()}
        lost_alive = [victim for victim, how, _ in losses if how in ("stop", "cut")]
        if any(codes[m] for m in left) or any(codes[m] != 75 for m in lost_alive):
            run.fail("other exit codes")
        if self.hash_of(first) != self.expected:
            run.fail(f"{left} have other weights")
        self.last_step(first)
        run.end()
        for i in range(count):
            self.hosts.cut(i + 1, "up")
            (self.scratch / f"inject.{i}").unlink(missing_ok=True)
        print(f"{losses}: hosts {left} of {count} went on after {slowest:.1f} s at most, same weights", flush=True)
        if slowest > self.deadline_s + 3 + self.slack_s:
            raise SystemExit("FAILED: it took too long")

    def parted(self, others, goes_on):
        """Divides four hosts into two parts. Part `goes_on` must go on, the other save and stop."""
        directory = f"parted-{len(others)}-{others[0]}"
        run = Run(self, 4, [*self.words(directory), "--set", "cluster.on_host_loss=continue", *self.slowly(STEPS // 4)])
        run.wait_for(lambda: self.last_step(directory) >= STEPS // 4, PATIENCE_S)
        self.hosts.split(others)
        run.wait_for(lambda: len(run.codes()) == 4, PATIENCE_S)
        codes = {m: code for m, (code, _) in run.codes().items()}
        if codes != {m: 0 if m in goes_on else 75 for m in range(4)}:
            run.fail("not this part has gone on, or another one as well")
        first = directory if goes_on[0] == 0 else f"{directory}.member-{goes_on[0]}"
        if self.hash_of(first) != self.expected:
            run.fail("other weights")
        run.end()
        self.hosts.split([])
        print(f"parted from {others}: {goes_on} went on, same weights", flush=True)

    def losses(self, draw, count):
        """Draws one or two losses after which the remaining hosts can go on."""
        found, left, at = [], list(range(count)), draw.randrange(1, STEPS // 2)
        for _ in range(draw.choice((1, 1, 2))):
            able = [v for v in left if 2 * (len(left) - 1) > len(left) or v != left[0]]
            if not able:
                break
            victim, how = draw.choice(able), draw.choice(("kill", "kill", "stop", "cut", *STAGES))
            found.append((victim, how, at))
            left.remove(victim)
            at += draw.randrange(20, STEPS // 3)
        return found

    def survived_cases(self, number, seed):
        draw, self.slack_s = random.Random(seed), 0
        failed = 0
        for case in range(number):
            count = draw.choice((2, 3, 3))
            losses = self.losses(draw, count)
            print(f"{case}: ", end="", flush=True)
            try:
                self.goes_on(count, losses, f"case-{case}", draw)
            except SystemExit as why:
                if why.code == 143:
                    raise
                print(why, losses, f"(case {case} of seed {seed})", flush=True)
                failed += 1
                self.clear()
                for i in range(count):
                    (self.scratch / f"inject.{i}").unlink(missing_ok=True)
            for old in self.scratch.glob("case-*"):
                shutil.rmtree(old)
        print(json.dumps({"cases": number, "failed": failed}))
        return failed

    def disturbed(self, count, victim, how, at, again, directory=None, draw=None):
        """Inflicts the fault `how` on host `victim` (from 0) after step `at`. If `how` is a stage,
        the host is killed in this stage of the next step. All others must save. Saved runs (with
        `draw`: one of them) are resumed on `again` hosts."""
        directory = directory or f"{how}-{victim}-{at}"
        inject = self.scratch / f"inject.{victim}"
        if how in STAGES:
            inject.write_text(f"worker=0,step={at + 1},kind=stall,stage={how},seconds=20")
        run = Run(self, count, self.words(directory) + (self.shown(at) if draw or how in STAGES else self.slowly(at)))
        run.wait_for(lambda: self.steps(directory) >= max(at - 1, 1), PATIENCE_S)
        inject.unlink(missing_ok=True)
        time.sleep(0.3 if how in STAGES else draw.random() * 0.02 if draw else 0)
        pid = run.trainer_of(victim)
        if how == "mend":
            self.mended(run, count, victim, directory)
            return
        begin = time.time()
        if how == "cut":
            self.hosts.cut(victim + 1, "down")
        else:
            os.kill(pid, signal.SIGSTOP if how == "stop" else signal.SIGKILL)
        survivors = [m for m in range(count) if m != victim or how == "cut"]
        run.wait_for(lambda: all(m in run.codes() for m in survivors), PATIENCE_S)
        late = max(run.codes()[m][1] for m in survivors) - begin
        if any(run.codes()[m][0] != 75 for m in survivors):
            run.fail("a survivor did not end with 75")
        if late > self.deadline_s + 2 + self.slack_s:
            run.fail(f"it took {late:.1f} s")
        if how == "stop":  # the host must notice that the others have ended, and save
            os.kill(pid, signal.SIGCONT)
            run.wait_for(lambda: victim in run.codes(), PATIENCE_S)
        run.end()
        self.hosts.cut(victim + 1, "up")
        print(f"{how} {victim} of {count} at {at}: saved in {late:.1f} s", flush=True)
        for m in [draw.choice(survivors)] if draw else {survivors[0], survivors[-1]}:
            saved = directory if m == 0 else f"{directory}.member-{m}"
            self.whole(again, saved, saved)


def shorten_runs():
    """Halves the number of steps, because a program with a sanitizer is slow."""
    global EPOCHS, STEPS  # pylint: disable=global-statement
    EPOCHS, STEPS = EPOCHS // 2, STEPS // 2
    CONFIG["epochs"] = EPOCHS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", type=pathlib.Path)
    parser.add_argument("--deadline", type=float, default=2)
    parser.add_argument("--short", action="store_true", help="fewer of each")
    parser.add_argument("--slow", action="store_true", help="the program has a sanitizer")
    parser.add_argument("--grid", action="store_true", help="numbers of hosts, workers and shards")
    parser.add_argument("--example", type=pathlib.Path, help="a config in examples/, for --grid")
    parser.add_argument("--shards", type=int, action="append", help="of --grid")
    parser.add_argument("--workers", type=int, action="append", help="of --grid")
    parser.add_argument("--mpich", type=pathlib.Path, help="MPICH's mpirun, where the plugin was built with MPICH")
    parser.add_argument("--bytes", action="store_true", help="what a step sends, against the formula")
    parser.add_argument("--cases", type=int, default=0, help="random faults")
    parser.add_argument("--tcp", action="store_true", help="over the library's own transport, without mpirun")
    parser.add_argument("--survive", action="store_true", help="members are lost, and the others go on: with --tcp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--relay", type=pathlib.Path, help="some of the faults over a line that is late and loses frames")
    args = parser.parse_args()
    if args.slow:
        shorten_runs()
    sys.stdout.reconfigure(line_buffering=True)  # so that a kill loses no output
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the namespaces are removed
    program = args.trainer.resolve()
    if os.geteuid() != 0:
        skip("network namespaces are root's")
    for tool in ("ip", "unshare", *([] if args.tcp else ["mpirun"])):
        if not shutil.which(tool):
            skip(f"{tool} is missing: third_party/setup.sh hosts")
    if not args.tcp and not (program.parent / "liblockstep-mpi.so").exists():
        skip("liblockstep-mpi.so is not beside the program: third_party/setup.sh hosts, and build again")
    with tempfile.TemporaryDirectory() as folder, Hosts(4 if args.grid or args.bytes or args.survive else 3) as hosts:
        clean_environment(folder)
        test = Test(program, hosts, pathlib.Path(folder), args.deadline, args.tcp)
        test.prepare()
        test.mpich = args.mpich
        if args.grid:
            test.grid(hosts.count, args.example and args.example.resolve(), args.shards or (7, 8, 12, 24),
                      args.workers or (1, 2, 3))
            return
        if args.bytes:
            test.measure_bytes()
            return
        test.alone()
        if args.survive:
            if args.cases:
                sys.exit(test.survived_cases(args.cases, args.seed) != 0)
            test.survive(args.short)
            return
        if args.cases:
            networks = {"bridge": hosts}
            with contextlib.ExitStack() as stack:
                if args.relay:
                    by = [args.relay.resolve(), "5", "1", str(args.seed)]
                    networks["relay"] = stack.enter_context(Hosts(3, by))
                failed = test.cases(args.cases, args.seed, networks)
            sys.exit(failed != 0)
        test.whole(2, "two")
        test.namesakes()
        if not args.short:
            test.whole(3, "three")
        test.disturbed(3, 1, "kill", STEPS // 3, 2)
        test.disturbed(2, 0, "kill", STEPS // 4, 1)
        test.interrupted(2, 1, 3)
        if not args.short:
            test.paused(2)
            if not args.tcp:
                test.interrupted(3, -1, 2)
            test.interrupted(2, 0, 1)
            test.disturbed(3, 2, "stop", STEPS // 4, 2)
            test.disturbed(3, 1, "cut", STEPS // 3, 3)


if __name__ == "__main__":
    main()
