#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes every file system call of a save fail, in every way, one at a time.

    store_faults.py --driver save_driver --shim fs_fault.so [--long] [--jobs N] [--only FAULT]

The driver saves one generation over an older one, under the shim. Afterwards, without it:

  * the old or the new checkpoint is complete and is what a save writes, and no broken one exists;
  * the driver printed "saved" only if the new one exists and is durable;
  * a save that failed leaves nothing incomplete;
  * the next save succeeds, and leaves nothing but complete checkpoints.

The long form uses more kinds of errors, each once and lasting until the end, and also saves into an
empty directory. Prints counts as JSON; exit status 1 if a promise was broken.
"""
import argparse
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

KILLS = ["kill-before", "kill-after", "kill-half", "power"]
# What strikes one call, and what goes on to the end.
SHORT_FORM = KILLS + ["EIO", "EINTR", "short"], ["ENOSPC", "EDQUOT"]
LONG_FORM = (KILLS + ["ENOSPC", "EIO", "EDQUOT", "EINTR", "EROFS", "ENOMEM", "short"],
             ["ENOSPC", "EIO", "EDQUOT", "EINTR", "short"])

# Ways to save: how checkpoints are called, and calls that the system does not have.
WAYS = {
    "numbered": ("numbered", ""),
    "replaced": ("same", ""),
    "numbered without locks": ("numbered", "flock"),
}


class Campaign:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.counts = {"points": {}, "cases": 0, "killed": 0, "failed_saves": 0,
                       "saves_despite_fault": 0, "old_left": 0, "new_there": 0, "violations": 0}
        self.serial = 0

    def environment(self, folder, way, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("LS_FS_")}
        env.update(LD_PRELOAD=os.path.abspath(self.args.shim), LS_FS_ROOT=folder,
                   LS_FS_WITHOUT=WAYS[way][1])
        env.update(more)
        return env

    def driver(self, *arguments, env=None):
        return subprocess.run([self.args.driver, *map(str, arguments)], env=env, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def start(self, way, fresh):
        """A directory with what an earlier save has left, or an empty one."""
        self.serial += 1
        folder = os.path.join(self.folder, f"case-{self.serial}")
        os.mkdir(folder)
        if not fresh:
            naming = WAYS[way][0]
            # Three generations: the save under test has something to prune.
            for generation in (1, 2) if naming == "numbered" else (2,):
                self.must(self.driver("save", folder, generation, naming))
        return folder

    @staticmethod
    def must(done):
        if done.returncode != 0:
            sys.exit(f"a save without faults failed: {done.stderr}")

    def count_calls(self, way, fresh):
        folder = self.start(way, fresh)
        count, trace = folder + ".count", folder + ".trace"
        self.must(self.driver("save", folder, 3, WAYS[way][0], env=self.environment(
            folder, way, LS_FS_COUNT=count, LS_FS_TRACE=trace)))
        with open(count) as file:
            points = int(file.read())
        with open(trace) as file:
            calls = [line.split(" ", 2) for line in file.read().splitlines()]
        self.check_order(calls, folder)
        self.syncs[way, fresh] = self.syncs_that_count(calls)
        shutil.rmtree(folder)
        return points

    def check_order(self, calls, folder):
        """A kill cannot show that a sync is missing, so the order of calls is looked at: what is
        renamed was synced just before, and before anything is removed the directory is synced."""
        def hidden(path):
            return os.path.dirname(path) == folder and os.path.basename(path).startswith(".")

        for position, (_, call, path) in enumerate(calls):
            if not call.startswith("rename"):
                continue
            before = [where for _, name, where in calls[:position] if name == "fsync"]
            if not hidden(path) and not (before and hidden(before[-1])):
                self.violation(f"'{call} {path}' renames what was not synced")
            after = [name + where for _, name, where in calls[position:]
                     if name == "unlinkat" or (name, where) == ("fsync", folder)]
            if not after or after[0].startswith("unlinkat"):
                self.violation(f"the directory is not synced after '{call} {path}'")

    @staticmethod
    def syncs_that_count(calls):
        """The points at which a failure must not become a success: all syncs but those that precede
        the removal of what is hidden already."""
        points = set()
        renamed = ""
        for number, call, path in calls:
            if call.startswith("rename"):
                renamed = os.path.basename(path)
            if call == "fsync" and not renamed.startswith("."):
                points.add(int(number))
        return points

    def violation(self, text):
        self.counts["violations"] += 1
        print(f"VIOLATION: {text}", file=sys.stderr)

    def case(self, way, fresh, fault, lasting, point):
        """Runs one case; returns what is to be counted and what was broken."""
        naming = WAYS[way][0]
        folder = self.prepared(way, fresh)
        run = self.driver("save", folder, 3, naming, env=self.environment(
            folder, way, LS_FS_AT=str(point), LS_FS_FAULT=fault,
            LS_FS_KEEP="1" if lasting else ""))
        # The system that lacks a call lacks it in the recovery as well.
        recovery = self.driver("recover", folder, 4, naming, env=self.environment(folder, way))
        broken = self.judge(way, fresh, fault, lasting, run, recovery)
        if fault in ("EIO", "ENOSPC", "EDQUOT", "EROFS", "ENOMEM") and run.returncode == 0 and \
                point in self.syncs[way, fresh]:
            broken.append("a failed sync was taken for a success")
        shutil.rmtree(folder)
        return run, recovery, broken

    def prepared(self, way, fresh):
        folder = tempfile.mkdtemp(dir=self.folder)
        shutil.copytree(self.templates[way, fresh], folder, dirs_exist_ok=True)
        return folder

    @staticmethod
    def judge(way, fresh, fault, lasting, run, recovery):
        said_saved = "saved" in run.stdout.split()
        said_done = "done" in run.stdout.split()
        killed = run.returncode == -signal.SIGKILL
        old = 0 if fresh else 2
        out = []
        if recovery.returncode != 0:
            return [f"recovery ended with {recovery.returncode}: {recovery.stderr}"]
        before, saved, after = recovery.stdout.splitlines()
        newest, broken, note, hidden = map(int, before.split())
        if not killed and run.returncode not in (0, 1):
            out.append(f"the driver ended with {run.returncode}: {run.stderr}")
        if killed and fault not in KILLS:
            out.append("killed without reason")
        if (run.returncode == 0) != said_done:
            out.append("exit status and words differ")
        if broken:
            out.append(f"a broken checkpoint is there: {recovery.stderr}")
        if newest not in (old, 3):
            out.append(f"generation {newest}, expected {old} or 3")
        if said_saved and newest != 3:
            out.append("claimed to have saved, but the old one is there")
        if note not in (old, 3):
            out.append(f"the note is of generation {note}")
        if said_done and note != 3:
            out.append("claimed to be done, but the note is old")
        if fault == "EINTR" or fault == "short":
            if run.returncode != 0:
                out.append(f"{fault} is no reason to fail: {run.stderr}")
        # What was replaced must stay when the new name might not last.
        may_stay = "cannot sync its directory" in run.stderr or "cannot remove" in run.stderr
        if run.returncode == 1 and not lasting and hidden and not may_stay:
            out.append(f"a failed save left something: {run.stderr}")
        if run.returncode == 1 and " cannot " not in run.stderr:
            out.append(f"the message does not say what failed: {run.stderr}")
        if saved != "1":
            out.append(f"the next save failed: {recovery.stderr}")
        newest, broken, note, hidden = map(int, after.split())
        # Without locks nobody can tell a left-over from what is being written.
        if newest != 4 or broken or note != 4 or (hidden and "locks" not in way):
            out.append(f"after the next save: {after}: {recovery.stderr}")
        return out

    def tally(self, run, recovery):
        counts = self.counts
        counts["cases"] += 1
        counts["killed"] += run.returncode == -signal.SIGKILL
        counts["failed_saves"] += run.returncode == 1
        counts["saves_despite_fault"] += run.returncode == 0
        new = recovery.stdout.startswith("3 ")
        counts["new_there"] += new
        counts["old_left"] += not new

    def cases(self):
        ways = [(way, False) for way in WAYS]
        if self.args.long:
            ways += [(way, True) for way in WAYS]
        once, lasting = LONG_FORM if self.args.long else SHORT_FORM
        faults = [(f, False) for f in once] + [(f, True) for f in lasting]
        if self.args.only:
            faults = [f for f in faults if f[0] == self.args.only]
        self.templates, self.syncs = {}, {}
        for way, fresh in ways:
            self.templates[way, fresh] = self.start(way, fresh)
            points = self.count_calls(way, fresh)
            self.counts["points"][way + (" from nothing" if fresh else "")] = points
            for fault, keeps in faults:
                for point in range(1, points + 1):
                    yield way, fresh, fault, keeps, point

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            pending = {pool.submit(self.case, *c): c for c in self.cases()}
            for future in concurrent.futures.as_completed(pending):
                way, fresh, fault, lasting, point = pending[future]
                run, recovery, broken = future.result()
                self.tally(run, recovery)
                for text in broken:
                    self.violation(f"{way}{' from nothing' if fresh else ''}: {fault}"
                                   f"{' from' if lasting else ' at'} call {point}: {text}")
        return self.counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--driver", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", help="one fault alone")
    args = parser.parse_args()
    # In memory where there is one: thousands of syncs.
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) and not args.long else None
    folder = os.path.realpath(tempfile.mkdtemp(prefix="lockstep-store-", dir=base))
    try:
        counts = Campaign(args, folder).run()
    finally:
        shutil.rmtree(folder)
    print(json.dumps({"campaign": "store_faults", "form": "long" if args.long else "short",
                      **counts}, indent=2))
    return 1 if counts["violations"] or not counts["cases"] else 0


if __name__ == "__main__":
    sys.exit(main())
