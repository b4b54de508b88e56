#!/usr/bin/env python3
"""The live page and the report in a real browser: live_page.py TRAINER [--screenshots DIR]

A run is served; the page must follow it without being loaded again, say so when the server is gone, and
go on when another one takes its place. Then the report of a run must show its charts. Speaks WebDriver
with chromedriver; exit status 77 where there is none.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

CONFIG = {
    "name": "seen", "data": {"name": "synthetic", "limit": 2000}, "devices": "ref:2",
    "batch_size": 50, "shards": 4, "epochs": 200, "run_dir": "run",
    "optimizer": {"name": "sgd", "lr": 0.05}, "init": {"name": "xavier"},
    "model": {"layers": [{"type": "conv2d", "out": 4, "kernel": 5, "stride": 2}, {"type": "relu"},
                         {"type": "flatten"}, {"type": "dense", "out": 10}]},
}
PATIENCE_S = 30


def fail(text):
    sys.exit(f"live_page: {text}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Browser:
    """One page of a headless Chromium."""

    def __init__(self, directory, dark=False):
        self.port = free_port()
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1500",
                 f"--user-data-dir={directory}"]
        if dark:
            flags.append("--force-dark-mode")
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": flags},
                  "goog:loggingPrefs": {"browser": "ALL"}}
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                made = self.call("POST", "", {"capabilities": {"alwaysMatch": wanted}}, "")
                break
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        self.session = made["sessionId"]

    def call(self, method, path, body=None, session=None):
        session = f"/{self.session}" if session is None else session
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/session{session}{path}", method=method,
            data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            why = json.load(error)["value"]
            fail(f"{method} {path}: {why['error']}: {why['message'].splitlines()[0]}")

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script):
        return self.call("POST", "/execute/sync", {"script": script, "args": []})

    def text(self):
        return self.run("return document.querySelector('main').innerText")

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    def complaints(self):
        """What the page's scripts and its policy complained of; a server that is gone is none."""
        entries = self.call("POST", "/se/log", {"type": "browser"})
        return [e["message"] for e in entries if "ERR_CONNECTION" not in e["message"]
                and "favicon" not in e["message"]]

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()


def serve(program, port, *more):
    # a browser keeps asking at one place, so that a new server may find it taken for a moment
    return subprocess.Popen([program, "config.json", "--quiet", "--serve", str(port), *more])


def steps(text):
    found = re.search(r"([\d,]+) steps", text)
    return int(found.group(1).replace(",", "")) if found else 0


def wait_for(what, condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            fail(f"waited in vain for {what}")
        time.sleep(0.2)


def check_live(program, browser, shots):
    port = free_port()
    run = serve(program, port)
    try:
        wait_for("the server", lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        browser.open(f"http://127.0.0.1:{port}/")
        browser.run("window.same_page = true")
        first = steps(browser.text())
        wait_for("the page to follow the run", lambda: steps(browser.text()) > first)
        if shots:
            browser.screenshot(shots / "live.png")
        run.send_signal(signal.SIGINT)
        run.wait()
        wait_for("the page to say that nobody answers", lambda: "No answer" in browser.text())
        if shots:
            browser.screenshot(shots / "live_gone.png")
        last = steps(browser.text())
        run = serve(program, port, "--set", "run_dir=again")
        wait_for("the page to follow the next run",
                 lambda: "No answer" not in browser.text() and 0 < steps(browser.text()) != last)
        if not browser.run("return window.same_page"):
            fail("the page was loaded again")
    finally:
        run.send_signal(signal.SIGINT)
        run.wait()


def check_report(program, browser, shots):
    subprocess.run([program, "report", "run"], check=True, stdout=subprocess.DEVNULL)
    browser.open(pathlib.Path("run/report.html").resolve().as_uri())
    charts = browser.run("return [...document.querySelectorAll('svg')].filter("
                         "s => s.getBoundingClientRect().height > 50).length")
    if charts < 3:
        fail(f"the report shows {charts} charts")
    if browser.run("return document.documentElement.scrollWidth > window.innerWidth"):
        fail("the report is wider than the window")
    if shots:
        browser.screenshot(shots / "report.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--screenshots", type=pathlib.Path)
    parser.add_argument("--dark", action="store_true")
    args = parser.parse_args()
    if not shutil.which("chromedriver"):
        print("skipped: no chromedriver (Debian: chromium-driver)")
        sys.exit(77)
    program = str(pathlib.Path(args.program).resolve())
    shots = args.screenshots.resolve() if args.screenshots else None
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        pathlib.Path("config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        refused = subprocess.run([program, "--serve", "x", "config.json"], capture_output=True,
                                 text=True, check=False)
        if "built without" in refused.stderr:
            print("skipped: built without libmicrohttpd")
            sys.exit(77)
        browser = Browser(f"{directory}/profile", args.dark)
        try:
            check_live(program, browser, shots)
            check_report(program, browser, shots)
            complaints = browser.complaints()
            if complaints:
                fail(f"the pages complained: {complaints}")
        finally:
            browser.close()
    print("the page followed the run, noticed its end, and followed the next one")


if __name__ == "__main__":
    main()
