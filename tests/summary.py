#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reports the times of a run of the tests, and the tests that it skipped.

    summary.py BUILD [--factor N] [--rerun]

Reads BUILD/tests.xml, which ctest wrote, and prints the ten slowest tests, the tests beyond their
budgets, and in three lines the number of skipped tests with their reasons. A test's budget is its
label `budget:SECONDS`, else that of its tier (tiers.cmake), times --factor for a build that is
inherently slower. A test beyond twice its budget is a warning. One beyond four times its budget is
an error, exit status 1; with --rerun it is first run again alone, and the shorter of its two times
counts, so that a busy machine causes no error.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

SLOWEST = 10
REASONS = 3


def tier_budgets():
    text = (pathlib.Path(__file__).parent / "tiers.cmake").read_text(encoding="utf-8")
    return {tier: float(seconds) for tier, seconds in re.findall(r"set\(ls_budget_(\w+) (\d+)\)", text)}


def budgets(build, factor):
    """Of each registered test the seconds that it may take."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True)
    tiers, found = tier_budgets(), {}
    for test in json.loads(shown.stdout)["tests"]:
        labels = next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
        own = [float(label.split(":")[1]) for label in labels if label.startswith("budget:")]
        seconds = own or [tiers[label] for label in labels if label in tiers]
        if seconds:
            found[test["name"]] = factor * seconds[0]
    return found


def outcomes(build):
    """(name, seconds, reason to skip or None) of each test that ran."""
    for case in ElementTree.parse(pathlib.Path(build) / "tests.xml").getroot().iter("testcase"):
        reason = None
        if case.find("skipped") is not None:
            said = re.search(r"(?m)^skipped: (.*)$", case.findtext("system-out") or "")
            reason = said[1].strip() if said else case.find("skipped").get("message") or "disabled"
        yield case.get("name"), float(case.get("time") or 0), reason


def alone(build, name):
    """Seconds of a test that runs by itself."""
    start = time.monotonic()
    subprocess.run(["ctest", "--test-dir", build, "-R", f"^{re.escape(name)}$"], stdout=subprocess.DEVNULL, check=False)
    return time.monotonic() - start


def print_skipped(skipped):
    if not skipped:
        print("none was skipped")
        return
    counts = collections.Counter(skipped).most_common()
    shown = counts[:REASONS - 1] if len(counts) > REASONS else counts
    for reason, count in shown:
        print(f"{count:4} skipped: {reason}")
    if len(shown) < len(counts):
        rest = counts[len(shown):]
        print(f"{sum(c for _, c in rest):4} skipped: {'; '.join(reason for reason, _ in rest)[:160]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--factor", type=float, default=1)
    parser.add_argument("--rerun", action="store_true")
    args = parser.parse_args()

    allowed = budgets(args.build, args.factor)
    ran = list(outcomes(args.build))
    times = sorted(((s, n) for n, s, reason in ran if reason is None), reverse=True)
    print(f"{args.build}: {len(times)} tests ran, {sum(s for s, _ in times):.0f} s of tests; the slowest:")
    for seconds, name in times[:SLOWEST]:
        print(f"{seconds:8.1f} s  {name}")

    failed = 0
    for seconds, name in times:
        budget = allowed.get(name)
        if budget is None:
            print(f"error: {name} has no tier")
            failed = 1
            continue
        if seconds > 4 * budget and args.rerun:
            seconds = min(seconds, alone(args.build, name))
        if seconds > 2 * budget:
            failed |= seconds > 4 * budget
            word = "error" if seconds > 4 * budget else "warning"
            print(f"{word}: {name} took {seconds:.1f} s; its budget is {budget:.1f} s")
    print_skipped([reason for _, _, reason in ran if reason is not None])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
