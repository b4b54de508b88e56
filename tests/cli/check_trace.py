#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks a timeline: check_trace.py FILE --workers N --steps N [--ops] [--devices]

It must be JSON in the Trace Event Format; its spans nest on every track; each worker has every step
once, and all of its steps have one name; an arrow leads to each range of steps from its submission;
the counters have values for every worker; the phases of a step follow one another and sum to the step within 2 %; waits are within
merges, and ops within phases. With --devices each worker's device has tracks of its own, on which
nothing overlaps, nothing is before the worker's start or after the run's end, and something was
done in every step.
"""

import argparse
import collections
import json
import re
import sys

PHASES = {"begin", "gather", "forward", "backward", "recorded step", "add up", "merge", "apply"}
SLACK_US = 0.0015  # tolerance in µs, because times are truncated to nanoseconds
COORDINATOR = 1  # number of the coordinator's track; the tracks of workers begin at FIRST
FIRST = 2


def fail(text):
    sys.exit(f"check_trace: {text}")


def check_schema(trace):
    if not isinstance(trace.get("traceEvents"), list):
        fail("no traceEvents")
    for e in trace["traceEvents"]:
        if e.get("ph") not in ("X", "M", "C", "s", "f") or not isinstance(e.get("name"), str) or e.get("pid") != 1:
            fail(f"not an event: {e}")
        if e["ph"] == "X":
            need = ("ts", "dur", "tid")
        else:
            need = () if e["ph"] == "M" else ("ts", "tid", "id")[:3 if e["ph"] in "sf" else 2]
        for key in need:
            if not isinstance(e.get(key), (int, float)) or e[key] < 0:
                fail(f"{key} of {e}")


def check_nesting(spans, track):
    open_until = []
    for s in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
        end = s["ts"] + s["dur"]
        while open_until and open_until[-1] <= s["ts"] + SLACK_US:
            open_until.pop()
        if open_until and end > open_until[-1] + SLACK_US:
            fail(f"track {track}: {s['name']} at {s['ts']} ends behind the span around it")
        open_until.append(end)


def inside(spans, outer):
    begin, end = outer["ts"] - SLACK_US, outer["ts"] + outer["dur"] + SLACK_US
    return [s for s in spans if s["ts"] >= begin and s["ts"] + s["dur"] <= end]


def check_worker(spans, track, steps, ops):
    by_step = collections.defaultdict(list)
    for s in spans:
        by_step[s.get("args", {}).get("step", 0)].append(s)
    whole = [s for s in spans if s["cat"] == "step"]
    if sorted(s["args"]["step"] for s in whole) != list(range(1, steps + 1)):
        fail(f"track {track}: {len(whole)} steps, expected 1 to {steps}")
    if {s["name"] for s in whole} != {"step"}:
        fail(f"track {track}: its steps are called {sorted({s['name'] for s in whole})}")
    for step in whole:
        parts = [s for s in inside(by_step[step["args"]["step"]], step) if s is not step]
        phases = [s for s in parts if s["cat"] == "phase"]
        names = {s["name"] for s in phases}
        computed = {"recorded step"} <= names or {"gather", "forward", "backward"} <= names
        if not computed or not {"merge", "apply"} <= names or names - PHASES:
            fail(f"track {track}: {step['name']} consists of {sorted(names)}")
        total = sum(s["dur"] for s in phases)
        if abs(total - step["dur"]) > 0.02 * step["dur"]:
            fail(f"track {track}: {step['name']}: phases sum to {total} of {step['dur']} µs")
        merges = [s for s in phases if s["name"] == "merge"]
        waits = [s for s in parts if s["cat"] == "wait"]
        if len(merges) != 1 or len(inside(waits, merges[0])) != len(waits):
            fail(f"track {track}: {step['name']}: waits outside its merge")
        if bool(ops) != any(s["cat"] == "op" for s in parts):
            fail(f"track {track}: {step['name']}: ops are there, or are not, as asked for")


def check_devices(trace, tracks, workers, wanted):
    """Checks the tracks of devices. They are named "cuda(0) stream 13" or "cuda(0) stream 13 (2)", and are
    sorted after the track of their worker."""
    about = trace["otherData"]
    named = {e["tid"]: e["args"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    place = {e["tid"]: e["args"]["sort_index"] for e in trace["traceEvents"]
             if e["name"] == "thread_sort_index"}
    devices = [t for t in named if re.fullmatch(r"\w+\(\d+\) stream \d+( \(\d\))?", named[t]["name"])]
    spans = sum(len(tracks[t]) for t in devices)
    if spans != int(about["device_spans"]) or spans != sum(
            e.get("cat") == "device" for e in trace["traceEvents"]):
        fail(f"{spans} spans on tracks of devices, {about['device_spans']} were counted")
    if not wanted:
        if devices:
            fail(f"nobody wanted {named[devices[0]]}")
        return 0
    if about["lost_device_spans"] != "0":
        fail(f"{about['lost_device_spans']} spans of devices were lost")
    last = max(s["ts"] + s["dur"] for track in tracks for s in tracks[track])
    for worker in range(workers):
        own = tracks[worker + FIRST]
        mine = [t for t in devices if place[worker + FIRST] < place[t] < place[worker + FIRST] + 256]
        done = sorted((s for t in mine for s in tracks[t]), key=lambda s: s["ts"])
        if not done:
            fail(f"worker {worker}: no spans of its device")
        if done[0]["ts"] < min(s["ts"] for s in own) - 1e6 or done[-1]["ts"] > last:
            fail(f"worker {worker}: its device worked at {done[0]['ts']} to {done[-1]['ts']} µs")
        for step in (s for s in own if s["cat"] == "step"):
            if not inside(done, step):
                fail(f"worker {worker}: its device did nothing in {step['name']}")
    for track in devices:
        end = 0
        for s in sorted(tracks[track], key=lambda s: s["ts"]):
            if s["ts"] < end - SLACK_US or not s["name"]:
                fail(f"{named[track]['name']}: {s['name']!r} at {s['ts']} begins before {end}")
            end = s["ts"] + s["dur"]
    return spans


def check_arrows(trace, tracks, workers, steps):
    """Checks the arrows. The head of an arrow belongs to the next span that begins on its track; if two
    spans begin at the same time, to the longer one."""
    tails = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "s"}
    heads = [e for e in trace["traceEvents"] if e["ph"] == "f"]
    reached = collections.Counter()
    for head in heads:
        tail = tails.pop(head["id"], None)
        if not tail or tail["ts"] > head["ts"] or (tail["name"], tail["cat"]) != (head["name"], head["cat"]):
            fail(f"no tail of {head}")
        outer = [s for s in tracks[COORDINATOR] if s["name"] == "submit"
                 and s["ts"] <= tail["ts"] <= s["ts"] + s["dur"]]
        later = [s for s in tracks[head["tid"]] if s["ts"] > head["ts"]]
        step = min(later, key=lambda s: (s["ts"], -s["dur"]), default={"cat": "none"})
        if len(outer) != 1 or step["cat"] != "step" or outer[0]["args"] != step["args"]:
            fail(f"from {outer} to {step}")
        reached[step["args"]["step"]] += 1
    submitted = {s["args"]["step"] for s in tracks[COORDINATOR] if s["name"] == "submit"}
    if tails or set(reached) != submitted or not submitted <= set(range(1, steps + 1)):
        fail(f"arrows to {sorted(reached)}, from {sorted(submitted)}, and {len(tails)} without a head")
    if set(reached.values()) != {workers} or (workers > 1 and len(submitted) != steps):
        fail(f"arrows to each of {workers} workers: {reached}")
    return len(heads)


def check_counters(trace, workers, steps):
    values = collections.defaultdict(list)
    for e in (e for e in trace["traceEvents"] if e["ph"] == "C"):
        for key, value in e["args"].items():
            values[e["name"], key].append((e["ts"], value))
    wanted = {("queue depth", f"worker {w}") for w in range(workers)} | {("throughput", "rows/s")}
    if set(values) != wanted:
        fail(f"counters {sorted(values)}, expected {sorted(wanted)}")
    for key, pairs in values.items():
        if [p[0] for p in pairs] != sorted(p[0] for p in pairs) or min(p[1] for p in pairs) < 0:
            fail(f"counter {key}: {pairs}")
        # At most two ranges of steps are in flight. A third one is counted if its worker has reported the
        # range, but has not left it yet.
        if key[0] == "queue depth" and not 1 <= max(p[1] for p in pairs) <= 3:
            fail(f"{key}: {pairs}, where at most two ranges are in flight")
    rates = [p[1] for p in values["throughput", "rows/s"]]
    if sum(r > 0 for r in rates) != steps or rates[-1] != 0:
        fail(f"rates {rates} of {steps} steps, which end at 0")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--ops", action="store_true")
    parser.add_argument("--devices", action="store_true")
    args = parser.parse_args()
    with open(args.file, encoding="utf-8") as f:
        trace = json.load(f)
    check_schema(trace)
    if trace["otherData"]["lost_marks"] != "0":
        fail(f"{trace['otherData']['lost_marks']} marks were lost")
    tracks = collections.defaultdict(list)
    for e in trace["traceEvents"]:
        if e["ph"] == "X":
            tracks[e["tid"]].append(e)
    tracks.setdefault(COORDINATOR, [])
    for track, spans in tracks.items():
        check_nesting(spans, track)
    for worker in range(args.workers):
        check_worker(tracks[worker + FIRST], worker + FIRST, args.steps, args.ops)
    device_spans = check_devices(trace, tracks, args.workers, args.devices)
    arrows = check_arrows(trace, tracks, args.workers, args.steps)
    check_counters(trace, args.workers, args.steps)
    coordinator = {s["name"] for s in tracks[COORDINATOR]}
    if not {"evaluate", "epoch", "submit"} <= coordinator:
        fail(f"the coordinator did {sorted(coordinator)}")
    print(f"{len(trace['traceEvents'])} events, {args.workers} workers, {args.steps} steps, "
          f"{arrows} arrows, {device_spans} spans of devices: sound")


if __name__ == "__main__":
    main()
