#!/usr/bin/env python3
"""Checks a timeline: check_trace.py FILE --workers N --steps N [--ops] [--devices]

It must be JSON in the Trace Event Format; its spans nest on every track; each worker has every step
once; the phases of a step follow one another and sum to the step within 2 %; waits are within
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
SLACK_US = 0.0015  # times are cut to nanoseconds


def fail(text):
    sys.exit(f"check_trace: {text}")


def check_schema(trace):
    if not isinstance(trace.get("traceEvents"), list):
        fail("no traceEvents")
    for e in trace["traceEvents"]:
        if e.get("ph") not in ("X", "M") or not isinstance(e.get("name"), str) or e.get("pid") != 1:
            fail(f"not an event: {e}")
        if e["ph"] == "X":
            for key in ("ts", "dur", "tid"):
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
    """Tracks named "cuda(0) stream 13", or "cuda(0) stream 13 (2)", sorted below their workers'."""
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
        own = tracks[worker + 1]
        mine = [t for t in devices if place[worker + 1] < place[t] < place[worker + 1] + 256]
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
    for track, spans in tracks.items():
        check_nesting(spans, track)
    for worker in range(args.workers):
        check_worker(tracks[worker + 1], worker + 1, args.steps, args.ops)
    device_spans = check_devices(trace, tracks, args.workers, args.devices)
    coordinator = {s["name"] for s in tracks[0]}
    if not {"evaluate", "epoch 1"} <= coordinator:
        fail(f"the coordinator did {sorted(coordinator)}")
    print(f"{len(trace['traceEvents'])} events, {args.workers} workers, {args.steps} steps, "
          f"{device_spans} spans of devices: sound")


if __name__ == "__main__":
    main()
