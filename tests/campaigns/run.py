#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the campaigns in their long form and writes their results into RESULTS.md.

    run.py --build DIR [--fuzz-build DIR] [--asan-build DIR] [--keep DIR] [--only NAME]...
           [--minutes-of-fuzzing N] [--rounds-of-pauses N] [--no-write]

Can be stopped and started again: --keep stores what has passed at this commit, which is not
repeated. Rows of campaigns that were not run are not changed. Exit status 1 if a campaign does not
pass.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def words(*parts):
    return [str(part) for part in parts]


def campaigns(args):
    """Name, what it is, what passes, and the command."""
    built = pathlib.Path(args.build).resolve()
    asan = pathlib.Path(args.asan_build or args.build).resolve()
    here = built / "tests" / "campaigns"
    shim = here / "libfs_fault.so"
    reference = built / "tests" / "train" / "ref" / "trainer"
    trainer = next(p for p in (built / "trainer", ROOT / "trainer") if p.exists())
    keep = pathlib.Path(args.keep).resolve()
    soak, drawn, sanitized = keep / "soak", keep / "swarm", keep / "swarm_sanitized"
    calls = keep / "api_swarm"
    for directory in (soak, drawn, sanitized, calls):
        directory.mkdir(parents=True, exist_ok=True)
    fuzz = words(sys.executable, HERE / "fuzz.py", "--seconds", 60 * args.minutes_of_fuzzing,
                 "--keep", keep / "fuzz")
    if args.fuzz_build:
        fuzz += words("--build", args.fuzz_build)
    lenet = words("--set", "data.limit=2048", "--set", "epochs=2", "--set",
                  "checkpoint.every_steps=3", "--set", "optimizer.momentum=0.9", "--set",
                  "optimizer.lr=0.05")
    return [
        ("store_faults", "every file system call of a save goes wrong in every way",
         "old or new checkpoint whole, no false success, no left-overs",
         words(sys.executable, HERE / "store_faults.py", "--long", "--shim", shim,
               "--driver", here / "save_driver")),
        ("power_cuts", "power cut before every file system call of a run, a sweep and exports: "
         "lost is any of what was not synced (200 subsets a cut); images of an ext4",
         "what was said to be saved or done is there; before, the old state or a clean beginning",
         words(sys.executable, HERE / "power_cuts.py", "--long", "--shim", shim, "--driver",
               here / "power_driver", "--trainer", reference)),
        ("kill_points", "SIGKILL at every file system call of a run that saves often, resumed on "
         "1 to 4 workers (small net)", "weights and records of the undisturbed run",
         words(sys.executable, HERE / "kill_resume.py", "--trainer", reference, "--backend", "ref",
               "--config", HERE / "small.json", "--set", "checkpoint.every_steps=2", "--shim", shim,
               "--random", 0, "--state", keep / "kill_points.json")),
        ("kill_points_waiting", "the same, with checkpoints that wait in memory for 2 ms and then come with the best one",
         "the same",
         words(sys.executable, HERE / "kill_resume.py", "--trainer", reference, "--backend", "ref",
               "--config", HERE / "small.json", "--set",
               'checkpoint={"every_steps":1,"every_seconds":0.002,"best":true}', "--shim", shim,
               "--random", 40, "--state", keep / "kill_points_waiting.json")),
        ("kill_points_default", "the same with the default, by which the short run saves at its end", "the same",
         words(sys.executable, HERE / "kill_resume.py", "--trainer", reference, "--backend", "ref",
               "--config", HERE / "small.json", "--set", 'checkpoint={"best":true}', "--shim", shim,
               "--random", 40, "--state", keep / "kill_points_default.json")),
        ("kill_random", "SIGKILL at random times, up to four times a run, resumed on 1 to 4 workers "
         "(LeNet on 2,048 images)", "weights and records of the undisturbed run",
         words(sys.executable, HERE / "kill_resume.py", "--trainer", trainer, "--config",
               ROOT / "examples" / "fashion_mnist.json", "--random", 200, "--state",
               keep / "kill_random.json", *lenet)),
        ("worker_faults", "workers that fail or stall at every stage, 2 to 8 of them, seeded "
         "schedules", "same final bits; noticed within deadline + 1 s; right worker named",
         words(here / "worker_faults", "--schedules", 300, "--seed", 1)),
        ("pauses", "a run that is stopped, frozen, starved, traced or suspended from its terminal, and "
         "threads that hang, asleep or spinning, with a pause in the middle and without",
         "nobody healthy is lost, same bits; hangs named within deadline + 1 s, pauses not counted",
         words(sys.executable, HERE / "pauses.py", "--trainer", reference, "--config",
               HERE / "small.json", "--rounds", args.rounds_of_pauses)),
        ("corrupted_inputs", "truncation at every byte and every bit flipped of small files",
         "refused with file and place, or proved harmless; no crash",
         words(asan / "tests" / "campaigns" / "corrupt", "--long")),
        ("fuzzers", f"{args.minutes_of_fuzzing} min each, address and undefined-behaviour "
         "sanitizers", "no finding; each planted bug is found", fuzz),
        ("signals", "signals x phases x terminal, pipe, closed pipe",
         "documented exit code, resumable",
         words(sys.executable, HERE / "signals.py", "--trainer", reference, "--config",
               HERE / "small.json")),
        ("swarm", "20 min of random models and configs, 1 to 8 workers, lost devices, resumed runs",
         "weights, records and evaluations have the same bits; nothing is written beside a buffer",
         words(built / "tests" / "campaigns" / "swarm", "--seconds", 1200, "--seed", 2,
               "--directory", drawn)),
        ("swarm_sanitized", "10 min of the same under address and undefined-behaviour sanitizers",
         "the same, and no finding",
         words(asan / "tests" / "campaigns" / "swarm", "--seconds", 600, "--seed", 3,
               "--directory", sanitized)),
        ("api_swarm", "5 min of random sequences of all public calls, legal and not, in which allocations, devices and "
         "files fail", "each returns, with an error that its header promises; no old weights with LS_OK",
         words(built / "tests" / "campaigns" / "api_swarm", "--seconds", 300, "--seed", 4, "--headers",
               ROOT / "include" / "lockstep", "--unreached", HERE / "api_unreached.txt", "--directory", calls)),
        ("api_swarm_sanitized", "10 min of the same under address and undefined-behaviour sanitizers",
         "the same, and no finding",
         words(asan / "tests" / "campaigns" / "api_swarm", "--seconds", 600, "--seed", 5, "--headers",
               ROOT / "include" / "lockstep", "--unreached", HERE / "api_unreached.txt", "--directory", calls)),
        ("soak", "10 min of train, save, interrupt, resume, lost and stalled devices in one process",
         "resident memory grows by at most 1 MB after warm-up, descriptors and threads equal",
         words(here / "soak", "--seconds", 600, "--directory", soak)),
        ("hosts", "200 faults of a host, each a network namespace: killed, also at each stage of a step, stopped, cut off "
         "from the others for good or a moment; on 2 and 3 hosts, resumed on 1 to 3; half of them over a relay of 5 ms "
         "that loses 1 %", "all others save and end within the deadline and 2 s; each save goes on to the "
         "undisturbed run's weights; no process and no namespace is left",
         words(sys.executable, ROOT / "tests" / "cluster" / "hosts.py", trainer, "--cases", 200, "--seed", 7, "--relay",
               built / "tests" / "cluster" / "cluster_relay")),
        ("hosts that go on", "80 runs on 2 and 3 hosts, by TCP, of which one or two are lost one after the other: killed, also "
         "at each stage of a step, stopped, or cut off", "those that are left go on within the deadline and 3 s to the "
         "undisturbed run's weights, with each step on record once; whoever is stopped or cut off saves and ends with 75",
         words(sys.executable, ROOT / "tests" / "cluster" / "hosts.py", trainer, "--tcp", "--survive", "--cases", 80, "--seed", 8)),
        ("hosts that come", "300 runs by TCP that begin on 2 or 3 hosts; up to three times a host comes, also one that was "
         "lost, or is lost: killed, stopped or cut off, and the newcomer, the first or another host is killed in the middle "
         "of an admission", "all that were not lost end with the undisturbed run's weights; none hangs; no process and no "
         "temporary file is left",
         words(sys.executable, ROOT / "tests" / "cluster" / "arrivals.py", trainer, "--cases", 300, "--seed", 9)),
        ("links of hosts that come", "a host comes to 3 and to 4 hosts by TCP, and its links to all subsets of them are cut, by "
         "dropping or resetting, before, during and after its admission, or in one direction", "no member is lost, same weights, "
         "both sides and the records name the links; with links in one direction the host is admitted at the first try",
         words(sys.executable, ROOT / "tests" / "cluster" / "arrivals.py", trainer, "--links")),
        ("forge", "forged runs: weights, states, steps, another config in a segment, rows, each member of the receipt and of "
         "records, texts that two readers read differently, files that are none; 200 draws for each rate",
         "found with its place, or refused, or the page says that it proves nothing; by sampling at the page's rate",
         words(sys.executable, HERE / "forge.py", "--trainer", trainer)),
        ("flips", "400 runs on two hosts over a relay that damages the stream once: a flipped bit, bytes that are missing, "
         "added, repeated, exchanged, reflected or of another connection or run, a connection that is cut",
         "no other weights with status 0, no hang, and a word on each host that fails",
         words(sys.executable, HERE / "flips.py", trainer, "--runs", 400, "--seed", 10)),
        ("flips that go on", "200 of the same with on_host_loss continue, half of them with a second flip in the vote or "
         "after it", "the same",
         words(sys.executable, HERE / "flips.py", trainer, "--runs", 200, "--seed", 11, "--continue")),
        ("flips of a newcomer", "100 of the same to a host that is admitted to a run of two others",
         "the same, and the two others end with status 0",
         words(sys.executable, HERE / "flips.py", trainer, "--runs", 100, "--seed", 12, "--arrive")),
        ("cycles", "10,000 times open, two steps, evaluation, prediction, close, in one process",
         "resident memory grows by at most 1 MB after 1,000, descriptors and threads equal",
         words(built / "tests" / "embed" / "cycles")),
    ]


def commit():
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                          capture_output=True, text=True, check=False)
    dirty = subprocess.run(["git", "-C", str(ROOT), "status", "--porcelain", "src", "include"],
                           capture_output=True, text=True, check=False).stdout
    return done.stdout.strip() + (" and changes" if dirty.strip() else "")


def last_json(text):
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                pass
    try:  # or the whole output is one object
        return json.loads(text[text.index("{"):])
    except ValueError:
        return {}


def run(command):
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                              check=False)
        errors.seek(0)
        tail = errors.read()[-2000:]
    return {"seconds": round(time.monotonic() - begun), "code": done.returncode,
            "counts": last_json(done.stdout), "output": (done.stdout[-1500:] + tail)}


def flat(counts):
    """The numbers that a reader wants to see, on one line."""
    skip = {"campaign", "passed"}
    parts = []
    for key, value in counts.items():
        if key in skip or isinstance(value, (list, str)):
            continue
        if isinstance(value, dict):
            inner = ", ".join(f"{k} {v:,}" for k, v in value.items()
                              if isinstance(v, (int, float)) and not isinstance(v, bool))
            if inner and (len(inner) < 300 or key == "features"):
                parts.append(f"{key.replace('_', ' ')}: {inner}")
        elif not isinstance(value, bool):
            parts.append(f"{key.replace('_', ' ')} {value:,}")
    return "; ".join(parts)


def earlier(results, plan):
    """The row and the counts of each campaign that is not among the results, as they were written."""
    rows, counts = {}, {}
    lines = (HERE / "RESULTS.md").read_text(encoding="utf-8").splitlines()
    for name, what, passes, _ in plan:
        if name not in results:
            rows[name] = next((l for l in lines if l.startswith(f"| {what} | {passes} | ")), None)
            counts[name] = next((l for l in lines if l.startswith(f"- **{name}**: ")), None)
    return rows, counts


def write(results, plan):
    rows, counts = earlier(results, plan)
    machine = subprocess.run(["sh", "-c", "grep -m1 'model name' /proc/cpuinfo | cut -d: -f2; nproc"],
                             capture_output=True, text=True, check=False).stdout.split("\n")
    lines = ["# Campaigns: what was made to go wrong, and what came of it", "",
             "Made by `./dev campaigns` (tests/campaigns/run.py); do not edit. The bugs that were found"
             " on the way are in [BUGS.md](BUGS.md).", "",
             f"Machine: {machine[0].strip()}, {machine[1].strip()} CPUs. "
             f"{datetime.date.today().isoformat()}.", "",
             "| campaign | passes if | passed | commit | seconds |", "|---|---|---|---|---:|"]
    for name, what, passes, _ in plan:
        if rows.get(name):
            lines.append(rows[name])
            continue
        r = results.get(name)
        row = (f"{'yes' if r['code'] == 0 else 'NO'} | {r['commit']} | {r['seconds']:,}" if r
               else "not run | | ")
        lines.append(f"| {what} | {passes} | {row} |")
    lines += ["", "## Counts", ""]
    for name, *_ in plan:
        if name in results:
            lines.append(f"- **{name}**: {flat(results[name]['counts'])}")
        elif rows.get(name) and counts.get(name):
            lines.append(counts[name])
    (HERE / "RESULTS.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--fuzz-build")
    parser.add_argument("--asan-build")
    parser.add_argument("--keep", default=str(ROOT / "build" / "campaigns"))
    parser.add_argument("--only", action="append")
    parser.add_argument("--minutes-of-fuzzing", type=int, default=5)
    parser.add_argument("--rounds-of-pauses", type=int, default=10)
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args()
    kept = pathlib.Path(args.keep) / "results.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    here = commit()
    plan = campaigns(args)
    for name, what, _, command in plan:
        if args.only and not any(name == only or name.startswith(only + " ") for only in args.only):
            continue
        if results.get(name, {}).get("commit") == here and results[name]["code"] == 0:
            continue
        print(f"{name}: {what}", file=sys.stderr, flush=True)
        results[name] = dict(run(command), commit=here)
        kept.write_text(json.dumps(results, indent=1), encoding="utf-8")
        if results[name]["code"] != 0:
            print(results[name]["output"], file=sys.stderr)
        print(f"  {'passed' if results[name]['code'] == 0 else 'FAILED'} after "
              f"{results[name]['seconds']} s: {flat(results[name]['counts'])}", file=sys.stderr,
              flush=True)
        if not args.no_write:
            write(results, plan)
    return 0 if all(r["code"] == 0 for r in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
