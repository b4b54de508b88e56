#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Creates every directory that a power cut may leave, and runs a user's commands on it.

    power_cuts.py --shim fs_fault.so --driver power_driver [--trainer trainer_ref]
                  [--long] [--only NAME] [--keep DIR]

A program runs once under the shim, which records what it requests from the file system and how much
it has printed by then. The cut may come before any recorded call. What was not synced by then may
exist or not, each operation independently: contents are certain once their file was synced, names
once their directory was. For each cut these states are created:

  * everything that was not synced is lost;
  * each such operation alone is lost;
  * the first n of them are kept, for every n; or all of them, but files that have grown contain
    zeros;
  * many seeded subsets (all if there are few), in which pages of a write are lost one by one, or
    contain zeros if the file has grown already.

Equal states are checked once. If a loop device can be mounted, images of an ext4 file system are
checked as well, copied while a run uses it. After a save or an end was reported, the commands must
give what was promised; before, they must find the old state or a clean beginning, and never a run
that is refused or wrong. Prints counts as JSON; exit status 1 if a promise was broken.
"""
import argparse
import concurrent.futures
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from record_keys import timeless

PAGE = 4096


class Broken(Exception):
    pass


# ---- what a program asked for -------------------------------------------------------------------

def read_record(path):
    """Tuples of how much was said before, what was called, its words, and the bytes written."""
    with open(path, "rb") as file:
        text = file.read()
    calls, at = [], 0
    while at < len(text):
        end = text.index(b"\n", at)
        said, what, rest = text[at:end].decode().split(" ", 2)
        words = rest.split("\t")
        at = end + 1
        count = int(words[2]) if what == "write" else 0
        calls.append((int(said), what, words, text[at:at + count]))
        at += count
    return calls


class Disk:
    """Files and directories by number; `names` says what a directory's entries lead to. What has been
    asked for and is not yet sure to last is pending, in order."""

    def __init__(self, root):
        self.root = root
        self.contents = {}            # file → bytes
        self.names = {0: {}}          # directory → {name: number}
        self.pending = []             # (who must be synced, change)
        self.live = {0: {}}           # the names as the program sees them
        self.inode = {os.stat(root).st_ino: 0}
        self.next = 1
        self.load(root, 0)

    def load(self, path, number):
        """What was there before the program began lasts."""
        for entry in os.scandir(path):
            made = self.make(entry.inode(), entry.is_dir(follow_symlinks=False))
            self.names[number][entry.name] = self.live[number][entry.name] = made
            if made in self.names:
                self.load(entry.path, made)
            else:
                with open(entry.path, "rb") as file:
                    self.contents[made] = file.read()

    def make(self, inode, directory):
        number, self.next = self.next, self.next + 1
        self.inode[inode] = number
        if directory:
            self.names[number], self.live[number] = {}, {}
        else:
            self.contents[number] = b""
        return number

    def entry(self, path):
        """A path's directory and its name there."""
        number, parts = 0, os.path.relpath(path, self.root).split(os.sep)
        for part in parts[:-1]:
            number = self.live[number][part]
        return number, parts[-1]

    def rename(self, change):
        """`change` {(directory, name): number or None} comes as one."""
        for (directory, name), number in change.items():
            if number is None:
                self.live[directory].pop(name, None)
            else:
                self.live[directory][name] = number
        self.pending.append((frozenset(d for d, _ in change), ("names", change)))

    def call(self, what, words, data):
        if what in ("create", "mkdir"):
            self.rename({self.entry(words[1]): self.make(int(words[0]), what == "mkdir")})
        elif what == "remove":
            self.rename({self.entry(words[0]): None})
        elif what in ("rename", "exchange", "link"):
            source, target = map(self.entry, words)
            left = self.live[target[0]].get(target[1]) if what == "exchange" else None
            moved = self.live[source[0]][source[1]]
            self.rename({target: moved} if what == "link" else {source: left, target: moved})
        elif what == "write":
            self.write(self.inode[int(words[0])], int(words[1]), data)
        elif what == "cut":
            number = self.inode[int(words[0])]
            self.pending.append((frozenset([number]), ("cut", number, int(words[1]))))
        elif what == "sync":
            self.sync(self.inode[int(words[0])])
        else:
            raise Broken(f"'{what} {words}': power_cuts.py does not know what it leaves")

    def write(self, number, at, data):
        """Pages reach the disk one by one."""
        while data:
            count = PAGE - at % PAGE
            self.pending.append((frozenset([number]), ("write", number, at, data[:count])))
            at, data = at + count, data[count:]

    def sync(self, number):
        kept = []
        for owners, change in self.pending:
            owners -= {number}
            if owners:
                kept.append((owners, change))
            else:
                apply(change, self.contents, self.names)
        self.pending = kept

    def state(self, chosen):
        """{path: bytes, or None for a directory} when just these changes have been kept besides."""
        contents, names = dict(self.contents), dict(self.names)
        touched = set()
        for change in chosen:
            if change[0] == "names":
                for directory, _ in change[1]:
                    if directory not in touched:
                        names[directory] = dict(names[directory])
                        touched.add(directory)
            apply(change, contents, names)
        out = {}

        def walk(number, path):
            for name, inner in names[number].items():
                if inner in names:
                    out[path + name] = None
                    walk(inner, path + name + "/")
                else:
                    out[path + name] = contents[inner]
        walk(0, "")
        return out


def apply(change, contents, names):
    if change[0] == "names":
        for (directory, name), number in change[1].items():
            if number is None:
                names[directory].pop(name, None)
            else:
                names[directory][name] = number
    elif change[0] == "cut":
        _, number, size = change
        contents[number] = contents[number][:size].ljust(size, b"\0")
    else:
        _, number, at, data = change
        old = contents[number]
        contents[number] = old[:at].ljust(at, b"\0") + data + old[at + len(data):]


def hollow(change):
    """The size of a file may last before what is in it."""
    return (*change[:3], bytes(len(change[3]))) if change[0] == "write" else change


def choices(pending, subsets, rng):
    changes = [change for _, change in pending]
    count = len(changes)
    yield from (changes[:n] for n in range(count + 1))
    yield [hollow(change) for change in changes]
    for n in range(count):
        yield changes[:n] + changes[n + 1:]
    if count and 2 ** count <= subsets:
        for bits in range(2 ** count):
            yield [change for n, change in enumerate(changes) if bits >> n & 1]
    for _ in range(subsets if count else 0):
        yield [hollow(change) if rng.random() < 0.3 else change
               for change in changes if rng.random() < 0.5]


# ---- the campaign -------------------------------------------------------------------------------

class Campaign:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.subsets = 200 if args.long else 1
        self.counts = {"campaign": "power_cuts"}
        self.judges = queue.Queue()
        self.serial = 0
        self.violations = 0
        self.looked = 0

    def note(self, name, text):
        self.violations += 1
        if self.violations <= 20:
            print(f"VIOLATION: {name}: {text}", file=sys.stderr)

    def record(self, root, commands):
        """Runs the commands, one after another, and returns what they asked for, and said."""
        log, said = root + ".record", root + ".said"
        env = {k: v for k, v in os.environ.items() if not k.startswith("LS_FS_")}
        env.update(LD_PRELOAD=os.path.abspath(self.args.shim), LS_FS_ROOT=root, LS_FS_RECORD=log)
        with open(said, "ab") as out:
            for command in commands:
                done = subprocess.run(command, env=env, stdout=out, stderr=subprocess.PIPE, text=True,
                                      timeout=300, cwd=root, check=False)
                if done.returncode:
                    sys.exit(f"{command} failed without a cut: {done.stderr}")
        with open(said, encoding="utf-8") as file:
            return read_record(log), file.read()

    def cuts(self, calls, every):
        """Where to cut. Most is pending before a sync: the short form takes `every` one of these, and
        where more was said."""
        syncs = 0
        for n, (before, what, _, _) in enumerate(calls):
            syncs += what == "sync"
            if self.args.long or what == "end" or calls[n + 1][0] != before or \
                    (what == "sync" and syncs % every == 0):
                yield n

    def states(self, disk, calls, said, every):
        """Each state once for each thing that was said before: (state, what was said, where)."""
        rng = random.Random(1)
        seen = set()
        calls = calls + [(len(said), "end", [], b"")]
        cuts = set(self.cuts(calls, every))
        for n, (before, what, words, data) in enumerate(calls):
            if n in cuts:
                for chosen in choices(disk.pending, self.subsets, rng):
                    self.tally["made"] += 1
                    state = disk.state(chosen)
                    key = (before, hash(frozenset((p, hash(b)) for p, b in state.items())))
                    if key not in seen:
                        seen.add(key)
                        yield state, said[:before], f"cut before call {n}, {what} {words}"
            if what != "end":
                disk.call(what, words, data)

    def build(self, state):
        self.serial += 1
        place = os.path.join(self.folder, f"state-{self.serial}")
        os.mkdir(place)
        for path in sorted(state):
            full = os.path.join(place, path)
            if state[path] is None:
                os.mkdir(full)
            else:
                with open(full, "wb") as file:
                    file.write(state[path])
        return place

    def case(self, name, judge, state, said, where):
        place = self.build(state)
        try:
            verdict = judge(state, said, place)
            self.tally[verdict] = self.tally.get(verdict, 0) + 1
        except Broken as problem:
            self.note(name, f"{where}; it had said {said.splitlines()[-1:]}: {problem}")
            if self.args.keep:
                shutil.copytree(place, os.path.join(self.args.keep, os.path.basename(place)))
        shutil.rmtree(place)

    def run(self, name, prepare, commands, judge_of, every=1):
        root = os.path.join(self.folder, name)
        os.mkdir(root)
        for command in prepare:
            subprocess.run(command, check=True, cwd=root, stdout=subprocess.DEVNULL)
        disk = Disk(root)
        calls, said = self.record(root, commands)
        self.tally = self.counts[name] = {"calls": len(calls), "syncs": sum(
            what == "sync" for _, what, _, _ in calls), "made": 0, "judged": 0}
        last = Disk(root).state([])   # as the program has left it
        judge = judge_of(last)
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            waiting = set()
            for case in self.states(disk, calls, said, every):
                self.tally["judged"] += 1
                waiting.add(pool.submit(self.case, name, judge, *case))
                if len(waiting) > 50:
                    done, waiting = concurrent.futures.wait(
                        waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in waiting:
                future.result()
        self.end_judges()

    # ---- judges that stay ----

    def ask(self, command, line):
        """A question to one of the programs that answer them."""
        try:
            process = self.judges.get_nowait()
        except queue.Empty:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        process.stdin.write(line + "\n")
        process.stdin.flush()
        answer = process.stdout.readline().strip()
        if not answer:
            raise Broken(f"it crashes: {process.communicate()[1][-500:]}")
        self.judges.put(process)
        if answer.startswith("VIOLATION"):
            raise Broken(answer)
        return answer.split()[0]

    def end_judges(self):
        while not self.judges.empty():
            self.judges.get().communicate("")

    # ---- a training run ----

    @staticmethod
    def records(text):
        alike = (timeless(json.loads(line)) for line in text.decode().splitlines())
        return [record for record in alike if record is not None]

    def same_run(self, last, prefix, place):
        """A run that went on to its end is the one that was not disturbed."""
        for file, of in (("weights.safetensors", bytes), ("metrics.jsonl", self.records)):
            with open(os.path.join(place, prefix + file), "rb") as found:
                if of(found.read()) != of(last[prefix + file]):
                    raise Broken(f"resumed to its end, it has another {file}")

    def promised(self, last, prefix, state):
        """What a run that has said "done" has left, before anybody does anything about it."""
        for file in ("config.json", "weights.safetensors"):
            if state.get(prefix + file) != last[prefix + file]:
                raise Broken(f"it had said that it was done, but {file} is not what it wrote")
        records = state.get(prefix + "metrics.jsonl", b"")
        if not records.endswith(b"\n") or b'"run_end"' not in records.splitlines()[-1]:
            raise Broken("it had said that it was done, but its last record is not there")
        for path in last:
            if "tfevents" in path and path.startswith(prefix) and state.get(path) != last[path]:
                raise Broken(f"it had said that it was done, but {path} is not what it wrote")

    def judge_run(self, last, prefix, state, place, saved, done, assignment=""):
        if done:
            self.promised(last, prefix, state)
        run = os.path.join(place, prefix[:-1])
        looks = self.look_at(run) if self.looks() else []
        answer = self.ask([self.args.driver, "judge"], f"{run} {saved} {int(done)} {assignment}")
        if answer == "resumed" and looks:
            raise Broken(f"it can be resumed, but {looks}")
        if answer in ("begun", "resumed"):
            self.same_run(last, prefix, place)
        return answer

    def looks(self):
        """At some runs only: each look is a few processes."""
        self.looked += 1
        return self.args.trainer and self.looked % (4 if self.args.long else 8) == 0

    def look_at(self, run):
        """What the commands say that only read."""
        out = []
        for verb, *more in (("eval",), ("report",), ("export", "--to", run + ".onnx")):
            if verb == "eval" and not self.args.long:
                continue
            done = subprocess.run([self.args.trainer, verb, run, *more], capture_output=True, text=True,
                                  timeout=60, check=False)
            if done.returncode < 0:
                raise Broken(f"{verb} crashes: {done.stderr}")
            out += [f"{verb} says {done.stderr.strip()}"] if done.returncode else []
        return out

    @staticmethod
    def steps_saved(said):
        return max([int(line.split()[1]) for line in said.splitlines() if "saved" in line],
                   default=-1)

    def train(self, name="train", *sets):
        def judge_of(last):
            def judge(state, said, place):
                return self.judge_run(last, "deep/er/run/", state, place, self.steps_saved(said),
                                      "done" in said.split())
            return judge
        self.run(name, [], [[self.args.driver, "train", os.path.join(
            self.folder, name, "deep/er/run"), *sets]], judge_of)

    def train_by_default(self):
        """What is due waits in memory until the run is interrupted, and until its end."""
        self.train("train_by_default", 'checkpoint={"best":true}')

    def train_waiting(self):
        """What is due waits for some steps."""
        self.train("train_waiting",
                   'checkpoint={"every_steps":1,"every_seconds":0.001,"best":true,"async":false}')

    # ---- a file system's image, copied while a run goes on ----

    def ext4(self):
        tally = self.counts["ext4"] = {}
        root = os.path.join(self.folder, "ext4")
        os.mkdir(root)
        try:
            self.make_image(root)
        except (OSError, subprocess.CalledProcessError) as problem:
            tally["skipped"] = f"no loop-mounted ext4 here: {problem}"
            return
        run = os.path.join(root, "mounted/deep/er/run")
        last = self.judge_last(root, run)
        for turn in range(20 if self.args.long else 2):
            for number, (image, said) in enumerate(self.images(root, run)):
                self.judge_image(root, image, said, last, f"ext4, run {turn}, image {number}")
        self.mount(root, "mounted", None)

    @staticmethod
    def mount(root, place, image):
        place = os.path.join(root, place)
        if image:
            os.makedirs(place, exist_ok=True)
        subprocess.run(["mount", "-o", "loop", image, place] if image else ["umount", place],
                       check=True, stderr=subprocess.DEVNULL)

    def make_image(self, root):
        image = os.path.join(root, "image")
        with open(image, "wb") as file:
            file.truncate(24 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True, stderr=subprocess.DEVNULL)
        self.mount(root, "mounted", image)

    def judge_last(self, root, run):
        """The undisturbed run, as a state."""
        subprocess.run([self.args.driver, "train", run], check=True, stdout=subprocess.DEVNULL)
        last = Disk(run).state([])
        shutil.rmtree(os.path.join(root, "mounted/deep"))
        return {"deep/er/run/" + path: data for path, data in last.items() if "tfevents" not in path}

    def images(self, root, run):
        """Copies while the run stands still for a moment, and what it had said before."""
        with open(os.path.join(root, "said"), "w+", encoding="utf-8") as said:
            process = subprocess.Popen([self.args.driver, "train", run], stdout=said)
            ended = False
            while not ended:
                time.sleep(random.uniform(0.002, 0.05))
                ended = process.poll() is not None
                if not ended:
                    process.send_signal(signal.SIGSTOP)
                said.seek(0)
                text = said.read()
                data = self.as_of_one_moment(os.path.join(root, "image"))
                if not ended:
                    process.send_signal(signal.SIGCONT)
                # A new file each time: a loop device that lingers would show the last image again.
                with tempfile.NamedTemporaryFile(dir=root) as copy:
                    copy.write(data)
                    copy.flush()
                    yield copy.name, text
        shutil.rmtree(os.path.join(root, "mounted/deep"))

    @staticmethod
    def as_of_one_moment(image):
        """The kernel goes on writing while the run stands still: what is read with a journal from after such
        a write and directories from before it is of no moment. Between two equal reads there is one."""
        before, data = None, b""
        while data != before:
            before = data
            with open(image, "rb") as file:
                data = file.read()
        return data

    def judge_image(self, root, image, said, last, where):
        tally = self.counts["ext4"]
        tally["images"] = tally.get("images", 0) + 1
        self.mount(root, "cut", image)
        place = os.path.join(root, "cut")
        try:
            if os.path.isdir(os.path.join(place, "deep")):
                state = Disk(place).state([])
                verdict = self.judge_run(last, "deep/er/run/", state, place, self.steps_saved(said),
                                         "done" in said.split())
            elif said:
                raise Broken("the directory of the run is not there")
            else:
                verdict = "nothing"
            tally[verdict] = tally.get(verdict, 0) + 1
        except Broken as problem:
            self.note(where, f"it had said {said.splitlines()[-1:]}: {problem}")
        self.mount(root, "cut", None)

    # ---- a sweep ----

    def sweep(self):
        if not self.args.trainer:
            return
        rates = ("0.05", "0.1")
        runs = [(f"kept/{n + 1}/", f"optimizer.lr={rate}") for n, rate in enumerate(rates)]

        def judge_of(last):
            def judge(state, said, place):
                if said and state.get("results.json") != last["results.json"]:
                    raise Broken("it had said that it was done, but its results are not there")
                if "results.json" in state:
                    json.loads(state["results.json"])
                return "+".join([self.judge_run(last, run, state, place, -1, bool(said), assignment)
                                 for run, assignment in runs])
            return judge
        self.run("sweep", [["sh", "-c", f"'{self.args.driver}' config >config.json"]],
                 [[self.args.trainer, "sweep", "config.json", "--vary", f"lr={','.join(rates)}",
                   "--keep", "kept", "--json", "results.json", "--quiet"]], judge_of, every=20)

    # ---- exports, and a report ----

    def export(self):
        if not self.args.trainer:
            return
        files = ("old.onnx", "new.safetensors", "run/report.html")

        def judge_of(last):
            def judge(state, said, place):
                for file in files:
                    old = b"old\n" if file == "old.onnx" else None
                    if state.get(file) not in (last[file], last[file] if file in said else old):
                        raise Broken(f"{file} is neither the old one nor the new one")
                return "whole"
            return judge
        self.run("export", [["sh", "-c", f"'{self.args.driver}' train run && echo old >old.onnx"]],
                 [[self.args.trainer, "export", "run", "--to", files[0]],
                  [self.args.trainer, "export", "run", "--to", files[1]],
                  [self.args.trainer, "report", "run"]], judge_of)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--shim", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--trainer")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", action="append")
    parser.add_argument("--keep", help="copies of the states that break a promise")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    for name in ("shim", "driver", "trainer"):
        if getattr(args, name):
            setattr(args, name, os.path.abspath(getattr(args, name)))
    # In memory where there is enough of it: thousands of directories, and syncs.
    roomy = os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 256 << 20
    base = "/dev/shm" if roomy else None
    with tempfile.TemporaryDirectory(prefix="lockstep-power-", dir=base) as folder:
        campaign = Campaign(args, os.path.realpath(folder))
        for name in ("train", "train_by_default", "train_waiting", "sweep", "export", "ext4"):
            if not args.only or name in args.only:
                getattr(campaign, name)()
    campaign.counts["violations"] = campaign.violations
    print(json.dumps(campaign.counts))
    return 1 if campaign.violations else 0


if __name__ == "__main__":
    sys.exit(main())
