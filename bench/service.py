#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures how well the HTTP service of examples/service predicts while it trains.

    bench/service.py [--seconds 60] [--rounds 2] build/release/examples/service/lockstep-service

wrk (16 connections, one image a request) and a feeder of 200 labelled images a second run on CPU 0;
the service, which trains on one worker, may use all CPUs. It takes turns with the same service with
training turned off. Prints a Markdown table. The goal is at least 500 predictions/s, and a p99
latency of at most 20 ms or at most twice the p99 without training. Exit status 1: a request failed,
or the goal was missed.
"""
import argparse
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = ROOT / "examples" / "service" / "config.json"
FEED = ROOT / "examples" / "service" / "feed.py"
DATA = "/usr/share/datasets/fashion-mnist"
RATE = 200
IMAGE = 784

LUA = """
local file = io.open("%s", "rb")
wrk.method = "POST"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/octet-stream"
function done(summary, latency)
   local e = summary.errors
   io.write(string.format('\\nJSON {"requests": %%d, "us": %%d, "p50": %%f, "p99": %%f, "p999": %%f, ' ..
      '"max": %%f, "errors": %%d}\\n', summary.requests, summary.duration, latency:percentile(50),
      latency:percentile(99), latency:percentile(99.9), latency.max,
      e.connect + e.read + e.write + e.status + e.timeout))
end
"""


class Service:
    def __init__(self, args, folder, passes):
        self.state = folder / f"state-{passes}-{time.monotonic_ns()}"
        self.log = folder / "log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [args.service, "--port", "0", "--state", self.state, "--set", "devices=cpu:1",
                 "--queue", "200000", "--passes", str(passes), CONFIG], stderr=log)
        self.url = self.find(r"listening on (\S+)")

    def find(self, pattern):
        for _ in range(600):
            found = re.search(pattern, self.log.read_text(encoding="utf-8"))
            if found:
                return found[found.re.groups]
            time.sleep(0.1)
        sys.exit(f"the service does not start: {self.log.read_text(encoding='utf-8')}")

    def metric(self, name):
        with urllib.request.urlopen(self.url + "/metrics") as answer:
            text = answer.read().decode()
        return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        if status:
            sys.exit(f"the service ended with status {status}: {self.log.read_text()}")


def feed(service, *options):
    command = ["taskset", "-c", "0", sys.executable, FEED, *options, service.url, DATA]
    return subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")


def accepted(feeder):
    text = feeder.communicate()[0]
    if feeder.returncode:
        sys.exit(f"feed.py: status {feeder.returncode}")
    return int(text.split()[0])


def one_round(args, folder, passes):
    service = Service(args, folder, passes)
    sent = accepted(feed(service, "--seconds", "2"))
    rows, start = service.metric("lockstep_rows_total"), time.monotonic()
    feeder = feed(service, "--rate", str(RATE), "--together", "4", "--seconds",
                  str(args.seconds + 2))
    wrk = subprocess.run(
        ["taskset", "-c", "0", "wrk", "-t", "1", "-c", "16", "-d", f"{args.seconds}s", "-s",
         folder / "predict.lua", service.url + "/predict"],
        stdout=subprocess.PIPE, check=True, encoding="utf-8")
    trained = (service.metric("lockstep_rows_total") - rows) / (time.monotonic() - start)
    sent += accepted(feeder)
    result = json.loads(re.search(r"^JSON (.*)$", wrk.stdout, re.MULTILINE)[1])
    result["per_s"] = result["requests"] / (result["us"] * 1e-6)
    result["trained"] = trained
    service.end()
    result["sent"] = sent
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("service")
    args = parser.parse_args()
    if not shutil.which("wrk"):
        sys.exit("service.py: needs wrk, Debian's package wrk")
    if not pathlib.Path(args.service).exists():
        sys.exit(f"service.py: {args.service} was not built; it needs Debian's libmicrohttpd-dev")
    print("| training | predictions/s | p50 | p99 | p99.9 | longest | failed | images/s trained | "
          "examples accepted |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    met = True
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as name:
        folder = pathlib.Path(name)
        (folder / "image").write_bytes(bytes(i % 251 for i in range(IMAGE)))
        (folder / "predict.lua").write_text(LUA % (folder / "image"), encoding="utf-8")
        for _ in range(args.rounds):
            alone = None
            for passes, label in ((0, "off"), (1000000, "on")):
                r = one_round(args, folder, passes)
                print(f"| {label} | {r['per_s']:,.0f} | {r['p50'] / 1000:.1f} ms | "
                      f"{r['p99'] / 1000:.1f} ms | {r['p999'] / 1000:.1f} ms | {r['max'] / 1000:.0f} ms | "
                      f"{r['errors']} | "
                      f"{r['trained']:,.0f} | {r['sent']:,} |", flush=True)
                alone = alone or r["p99"]
                met = met and r["per_s"] >= 500 and r["errors"] == 0 and \
                    (r["p99"] <= 20000 or r["p99"] <= 2 * alone)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
