#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests the page of a run in a real browser: live_page.py TRAINER [--screenshots DIR]

First a run with --serve: the page must show new records without being reloaded, report that the
server is gone, and continue with the next server at the address, even if that server resumes the
same run. Then reports: of a finished run, with mouse and keys, on a desktop and a phone; of a run of
100,000 steps, which must be painted within a second and remain responsive; of a run whose names
contain markup; and of a run in a browser without scripts. Uses WebDriver with chromedriver; exit
status 77 if it is missing.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from free_port import free_port  # noqa: E402

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

    def cdp(self, command, parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def complaints(self):
        """Returns the error messages of the page's scripts and of its policy, without those about a server that
        is gone."""
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
    # a browser keeps connections to the address open, so that a new server may find the address in use for a moment
    return subprocess.Popen([program, "config.json", "--quiet", "--serve", str(port), *more])


def steps(text):
    found = re.search(r"steps: ([\d,]+)", text)
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
        wait_for("two evaluations", lambda: browser.run("return summary().tested.length") > 1)
        wait_for("the time that is left", lambda: re.search(r"about .* left", browser.text()))
        text = browser.text()
        for wanted in (f"on {socket.gethostname()}", "in run", "so far"):
            if wanted not in text:
                fail(f"the page does not say '{wanted}': {text}")
        expect(browser, "the newest learning rate", "charts.lr.legend.textContent.trim()", "step 0.05")
        if "running" not in text or "Workers in the newest step" not in text:
            fail(f"the page does not say that the run goes on: {text}")
        if text.index("Test accuracy") > text.index("Throughput") or text.index("Progress") > text.index("Throughput"):
            fail("accuracy and progress do not come first")
        if shots:
            browser.screenshot(shots / "live.png")
        run.send_signal(signal.SIGINT)
        run.wait()
        wait_for("the page to say that the run has ended", lambda: "so has its server" in browser.text())
        if "interrupted" not in browser.text():
            fail(f"the page did not hear how the run ended: {browser.text()}")
        if shots:
            browser.screenshot(shots / "live_gone.png")
        last = steps(browser.text())
        run = serve(program, port, "--set", "run_dir=again")
        wait_for("the page to follow the next run",
                 lambda: "so has its server" not in browser.text() and 0 < steps(browser.text()) != last)
        run.send_signal(signal.SIGINT)
        run.wait()
        done = json.loads(pathlib.Path("again/metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["steps"]
        run = serve(program, port, "--resume", "again", "--set", "epochs=300")
        wait_for("the page to follow the resumed run",
                 lambda: "Resumed after" in browser.text() and steps(browser.text()) > done)
        if "of 12,000" not in browser.text():
            fail(f"the resumed run has 300 epochs of 40 steps: {browser.text()}")
        drawn = browser.run("return charts.loss.curves[0].points[0].from")
        if drawn != 1:
            fail(f"the resumed run's curve begins at step {drawn}")
        if not browser.run("return window.same_page"):
            fail("the page was loaded again")
    finally:
        run.send_signal(signal.SIGINT)
        run.wait()


KEYS = {"right": "\ue014", "left": "\ue012", "home": "\ue011", "tab": "\ue004"}


def press(browser, *keys):
    actions = [{"type": kind, "value": k} for k in keys for kind in ("keyDown", "keyUp")]
    browser.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})


def drag(browser, selector, start, end):
    """Drags the mouse between two positions, which are fractions of the element's width."""
    box = browser.run(f"const e = document.querySelectorAll('{selector}')[1]; e.scrollIntoView({{block: 'center'}}); "
                      "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]")
    at = [{"type": "pointerMove", "duration": 50, "x": int(box[0] + box[2] * share), "y": int(box[1] + box[3] / 2)}
          for share in (start, end)]
    browser.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [
        at[0], {"type": "pointerDown", "button": 0}, at[1], {"type": "pointerUp", "button": 0}]}]})


def expect(browser, what, script, wanted=True):
    got = browser.run(f"return {script}")
    if got != wanted:
        fail(f"{what}: expected {wanted}, got {got}")


def resize(browser, width):
    """Sets the width of the window, and waits until the charts are drawn again, which takes longer on a busy
    machine."""
    browser.cdp("Emulation.setDeviceMetricsOverride",
                {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
    wait_for(f"a page without sideways scrolling on {width} pixels", lambda: browser.run(
        f"return window.innerWidth === {width} && document.documentElement.scrollWidth <= window.innerWidth"))


def as_seen_on(browser, width):
    resize(browser, width)
    for grid in (".first", ".tiles", ".charts:not(.classes)"):
        rows = browser.run(f"const g = document.querySelector('{grid}'); "
                           "return Object.values([...g.children].filter(e => e.offsetWidth < g.offsetWidth).reduce("
                           "(n, e) => (n[e.offsetTop] = (n[e.offsetTop] || 0) + 1, n), {}))")
        if len(set(rows)) > 1:
            fail(f"{grid} has a hole on {width} pixels: {rows}")


def check_report(program, browser, shots):
    subprocess.run([program, "report", "run"], check=True, stdout=subprocess.DEVNULL)
    browser.open(pathlib.Path("run/report.html").resolve().as_uri())
    expect(browser, "charts", "[...document.querySelectorAll('svg:not(.matrix)')].filter(s => "
           "s.getBoundingClientRect().height > 50).length", 4)
    expect(browser, "rows of the matrix that are all of a class",
           "[...document.querySelectorAll('.matrix .c3 title')].every(t => / of [\\d,]+ predicted as /.test(t.textContent))")
    expect(browser, "counts in the matrix", "[...document.querySelectorAll('.matrix g text')].reduce("
           "(n, t) => n + Number(t.textContent), 0)", 1000)
    expect(browser, "classes", "document.querySelectorAll('.classes tbody tr').length", 10)
    expect(browser, "the first of equal evaluations as the best",
           "/best 0.5000 after epoch 1/.test(metric_tile({ ...summary(), tested: [1, 2].map(epoch => "
           "({ epoch, test_accuracy: 0.5, test_loss: 1 })) }).textContent)")
    browser.run("const e = last('eval'); e.confusion = e.confusion.map(row => row.map(() => 1)); draw_classes(summary())")
    expect(browser, "counts of another evaluation after as many epochs",
           "[...document.querySelectorAll('.matrix g text')].reduce((n, t) => n + Number(t.textContent), 0)", 100)
    expect(browser, "the config is folded", "[...document.querySelectorAll('details')].at(-1).open", False)
    expect(browser, "what training accuracy means",
           "/training: [01][.\\d]*, mean over the steps of epoch/.test(document.body.innerText)")
    for width in (1280, 768, 390):
        as_seen_on(browser, width)
        if shots:
            browser.screenshot(shots / f"report_{width}.png")
    as_seen_on(browser, 1280)
    expect(browser, "no gradient norm without clipping", "charts.norm.figure.isConnected", False)
    steps_drawn = "charts.loss.columns.at(-1).x - charts.loss.columns[0].from"
    everything = browser.run(f"return {steps_drawn}")
    drag(browser, "svg", 0.4, 0.6)
    if not browser.run(f"return {steps_drawn}") < everything / 3:
        fail("dragging across the loss does not zoom")
    expect(browser, "the other chart of steps zooms, too", "charts.rate.view.lo === charts.loss.view.lo")
    if not re.search(r"step [\d,]+.*minibatch: \d", browser.run(
            "return charts.loss.tip.innerText").replace("\n", " ")):
        fail(f"the mouse reads no values: {browser.run('return charts.loss.tip.innerText')}")
    # The drawn evaluations reach beyond the view; the drawn minibatches end before it does.
    expect(browser, "the mouse stops at minibatches between two evaluations",
           "(c => { const at = c.curves[1].points[1].x; Object.assign(c.view, { lo: at - 12, hi: at - 5 }); c.draw(); "
           "return c.columns.length; })(charts.loss)", 8)
    browser.run("charts.loss.svg.focus()")
    press(browser, "0")
    expect(browser, "0 shows everything", steps_drawn, everything)
    press(browser, KEYS["home"], KEYS["right"], KEYS["right"])
    expect(browser, "keys read values", "charts.loss.tip.innerText.startsWith('step ' + charts.loss.columns[2].from)")
    press(browser, "+", "+")
    if not browser.run(f"return {steps_drawn}") < everything / 2:
        fail("+ does not zoom")
    press(browser, KEYS["tab"])
    expect(browser, "Tab goes on to the next chart's buttons", "document.activeElement.tagName", "BUTTON")


def write_run(directory, count, burst=0, devices=1, **config):
    """Writes the records of an invented run: 500 steps in an epoch, and a peak in the middle. Each `burst`th step
    has a duration of nearly 0."""
    lines = [{"type": "run_start", "time": "2024-01-31T09:30:00Z", "devices": [f"cpu({i})" for i in range(devices)], "batch_size": 10,
              "data": {"name": "made", "train_rows": 5000, "test_rows": 10},
              "config": {"epochs": max(1, count // 500), **config}}]
    for i in range(1, count + 1):
        lines.append({"type": "step", "step": i, "epoch": (i - 1) // 500 + 1, "rows": 10, "correct": 1, "lr": 0.1,
                      "loss": 9.5 if i == count // 2 else 1 + 1000 / (i + 1000),
                      "images_per_s": 900000000 if burst and i % burst == 0 else 240000,
                      "workers": [{"worker": 0, "queued": 1, "gather_s": 0.001, "forward_s": 0.002,
                                   "backward_s": 0.004, "comm_exposed_s": 0, "wait_s": 0, "apply_s": 0.001}]})
        if i % 500 == 0:
            lines.append({"type": "epoch", "epoch": i // 500, "seconds": 5, "images_per_s": 240000, "train_loss": 1,
                          "train_accuracy": 0.5})
    os.mkdir(directory)
    pathlib.Path(directory, "metrics.jsonl").write_text(
        "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in lines), encoding="utf-8")


def check_long_report(program, browser, shots):
    write_run("long", 100000, name="long")
    subprocess.run([program, "report", "long"], check=True, stdout=subprocess.DEVNULL)
    browser.open(pathlib.Path("long/report.html").resolve().as_uri())
    expect(browser, "the last step", "summary().step", 100000)
    expect(browser, "the peak", "charts.loss.columns.some(p => p.hi === 9.5)")
    expect(browser, "every label has room beside its axis",
           "[...document.querySelectorAll('figure svg text')].every(t => t.getBBox().x >= 0)")
    if not browser.run("return charts.loss.columns.length") <= 700:
        fail("the curve is not decimated")
    # The best of five measurements, because another program may have the CPU during one of them.
    painted, redrawn = [], []
    for _ in range(5):
        browser.open(pathlib.Path("long/report.html").resolve().as_uri())
        paint = "performance.getEntriesByName('first-contentful-paint')"
        wait_for("the first paint", lambda: browser.run(f"return {paint}.length"))
        painted.append(browser.run(f"return {paint}[0].startTime"))
        redrawn.append(browser.run("const t = performance.now(); charts.loss.zoom(0.5); "
                                   "return performance.now() - t"))
    if min(painted) > 1000 or min(redrawn) > 100:
        fail(f"100,000 steps: painted after {painted} ms, zoomed in {redrawn} ms")
    print(f"100,000 steps: painted after {min(painted):.0f} ms, zoomed in {min(redrawn):.0f} ms")
    if shots:
        browser.screenshot(shots / "long.png")


def check_bursts(program, browser):
    write_run("bursts", 200, 10, name="bursts")
    subprocess.run([program, "report", "bursts"], check=True, stdout=subprocess.DEVNULL)
    browser.open(pathlib.Path("bursts/report.html").resolve().as_uri())
    expect(browser, "steps reported together do not flatten the curve of rates",
           "[...charts.rate.svg.querySelectorAll('text')].map(t => t.textContent).filter(t => /[kMG]$/.test(t)).at(-1)", "250 k")


def check_hostile_report(program, browser):
    name = "</script><script>window.alien = 1</script><!-- \u2028\u2029 <img src=x onerror='window.alien = 2'>"
    write_run("hostile", 500, name=name)
    subprocess.run([program, "report", "hostile"], check=True, stdout=subprocess.DEVNULL)
    for scripts in (True, False):
        browser.cdp("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        browser.open(pathlib.Path("hostile/report.html").resolve().as_uri())
        expect(browser, "a name's script", "window.alien === undefined")
        expect(browser, "the name", "document.querySelector('h1').textContent", name)
        expect(browser, "a table where no scripts run",
               "document.querySelector('noscript table') !== null", not scripts)
    browser.cdp("Emulation.setScriptExecutionDisabled", {"value": False})


def check_parts(program, browser, shots):
    """Checks the report of the run of check_live: the model, predictions with pictures, and the details."""
    browser.open(pathlib.Path("run/report.html").resolve().as_uri())
    browser.cdp("Emulation.setDeviceMetricsOverride", {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    expect(browser, "the model's layers", "[...model.querySelectorAll('tbody tr')].map(r => r.innerText.replace(/\\s+/g, ' ').trim()).join('; ')",
           "0 conv2d 4 × 12 × 12 104; 1 relu 4 × 12 × 12; 2 flatten 576; 3 dense 10 5,770")
    expect(browser, "sixteen predictions", "document.querySelectorAll('.samples li').length", 16)
    expect(browser, "right and wrong ones", "document.querySelectorAll('.samples .right').length > 0 && "
           "document.querySelectorAll('.samples .wrong').length > 0")
    expect(browser, "pictures that are not empty", "[...document.querySelectorAll('.samples canvas')].filter(c => "
           "new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size > 8).length", 16)
    expect(browser, "wrong ones have another true class", "[...document.querySelectorAll('.samples .wrong')].every(li => "
           "li.querySelector('.detail').textContent !== 'true: ' + li.querySelector('b').textContent.slice(2))")
    for what in ("Run details", "Checksum", "Host", "Run directory", "Elapsed time", "Confusion matrix", "Learning rate"):
        if what not in browser.text():
            fail(f"the report lacks {what}")
    side = browser.run("const e = last('eval'); e.confusion = [[9, 1, 0], [2, 7, 1], [0, 3, 7]]; draw_classes(summary()); "
                       "return document.querySelector('svg.matrix').getBoundingClientRect().width")
    if not side < 300:
        fail(f"a matrix of three classes is {side} pixels wide")
    if shots:
        browser.screenshot(shots / "parts.png")


def check_norms(program, browser, shots):
    """Checks the curve of gradient norms of a run that clips gradients, in the report and in a comparison."""
    subprocess.run([program, "config.json", "--quiet", "--set", "run_dir=clipped", "--set", "epochs=3",
                    "--set", "optimizer.clip_norm=0.5"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([program, "report", "clipped"], check=True, stdout=subprocess.DEVNULL)
    browser.open(pathlib.Path("clipped/report.html").resolve().as_uri())
    records = map(json.loads, pathlib.Path("clipped/metrics.jsonl").read_text(encoding="utf-8").splitlines())
    norms = [r["grad_norm"] for r in records if r["type"] == "step"]
    expect(browser, "the gradient norms", "charts.norm.curves[0].points.map(p => p.y)", norms)
    expect(browser, "the norms after the learning rate", "charts.lr.figure.nextSibling === charts.norm.figure")
    for width in (1280, 768, 390):
        as_seen_on(browser, width)
        if shots:
            browser.run("charts.lr.figure.scrollIntoView()")
            browser.screenshot(shots / f"norms_{width}.png")
    subprocess.run([program, "compare", "clipped", "run", "--to", "norms.html"], check=True, stdout=subprocess.DEVNULL)
    browser.open(pathlib.Path("norms.html").resolve().as_uri())
    expect(browser, "the norms of the run that has them", "charts.norm.curves.map(c => c.name)", ["clipped"])
    if shots:
        browser.run("charts.lr.figure.scrollIntoView()")
        browser.screenshot(shots / "compare_norms.png")


def check_compare(program, browser, shots):
    """Checks the comparison of three runs of different length: a resumed one, a complete one, and one in progress."""
    write_run("whole", 1500, name="whole", optimizer={"name": "sgd", "lr": 0.1})
    subprocess.run([program, "config.json", "--quiet", "--set", "run_dir=resumed", "--set", "epochs=2"], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([program, "--resume", "resumed", "--quiet", "--set", "epochs=4"], check=True, stdout=subprocess.DEVNULL)
    running = subprocess.Popen([program, "config.json", "--quiet", "--set", "run_dir=running", "--set", "epochs=100000"],
                               stdout=subprocess.DEVNULL)
    try:
        metrics = pathlib.Path("running/metrics.jsonl")
        wait_for("an evaluation", lambda: metrics.exists() and '"type":"eval"' in metrics.read_text(encoding="utf-8"))
        subprocess.run([program, "compare", "whole", "resumed", "running", "--to", "compare.html"], check=True,
                       stdout=subprocess.DEVNULL)
    finally:
        running.send_signal(signal.SIGINT)
        running.wait()
    browser.open(pathlib.Path("compare.html").resolve().as_uri())
    expect(browser, "no gradient norms without clipping", "charts.norm.figure.isConnected", False)
    expect(browser, "states", "runs.map(r => r.state).join()", "killed,finished,running")
    expect(browser, "lengths of the curves", "charts.loss.curves.slice(0, 2).map(c => c.points.at(-1).x).join()", "1500,160")
    expect(browser, "no step twice", "charts.loss.curves.every(c => c.points.every((p, i) => !i || p.x > c.points[i - 1].x))")
    expect(browser, "the axis ends with the longest run", "charts.loss.columns.at(-1).x", 1500)
    expect(browser, "epochs of the resumed run", "charts.trained.curves[1].points.map(p => p.x).join()", "1,2,3,4")
    expect(browser, "keys in which the configs differ", "document.querySelector('.tables').innerText.includes('optimizer.lr')")
    browser.run("[...document.querySelectorAll('.axes button')].find(b => b.textContent === 'epoch').click()")
    expect(browser, "runs by epoch", "charts.loss.curves.slice(0, 2).map(c => Math.round(c.points.at(-1).x)).join()", "3,4")
    browser.run("charts.loss.svg.focus()")
    press(browser, KEYS["home"], KEYS["right"])
    expect(browser, "keys read the values of all runs", "charts.loss.tip.querySelectorAll('div').length", 3)
    browser.run("document.querySelector('.run').focus()")
    press(browser, " ")
    expect(browser, "a button hides a run", "charts.loss.curves.length", 2)
    press(browser, " ")
    for width in (390, 1280):
        resize(browser, width)
        if shots:
            browser.screenshot(shots / f"compare_{width}.png")


def check_columns(program, browser, shots):
    """Checks that each column of a comparison is visible when the runs have the names that they get by default. One
    key has values that are long words."""
    os.mkdir("runs")
    names = [f"runs/20240131-0930{i:02}-customers_of_the_shop" for i in range(8)]
    for i, name in enumerate(names):
        write_run(name, 500, name="customers_of_the_shop", data={"path": f"/srv/{'customers' * 8}{i}.csv", "validation": 0.2},
                  optimizer={"lr": 0.1 + i})
    for count in (2, 3, 4, 8):
        subprocess.run([program, "compare", *names[:count], "--to", "columns.html"], check=True, stdout=subprocess.DEVNULL)
        browser.open(pathlib.Path("columns.html").resolve().as_uri())
        expect(browser, "a letter and a name for each run", "[...document.querySelectorAll('.run b')].map(b => b.textContent).join('') + "
               "[...document.querySelectorAll('.run')].filter(b => b.innerText.includes('customers_of_the_shop')).length",
               "ABCDEFGH"[:count] + str(count))
        for width in (390, 700, 1280, 1920):
            resize(browser, width)
            expect(browser, f"tables of {count} runs that are wider than their places, on {width} pixels",
                   "[...document.querySelectorAll('.tables .scroll')].filter(s => s.scrollWidth > s.clientWidth).length", 0)
            expect(browser, f"values of {count} runs that are seen, on {width} pixels",
                   "[...document.querySelectorAll('.tables td')].filter(c => c.getBoundingClientRect().width > 8 && "
                   "c.getBoundingClientRect().right <= window.innerWidth).length === rows.length * runs.length")
            expect(browser, f"columns of {count} runs that have a letter, on {width} pixels",
                   "new Set([...document.querySelectorAll('.tables thead th, .tables td')].filter(c => c.offsetWidth).map(c => "
                   "c.tagName === 'TH' ? c.innerText.trim() : getComputedStyle(c, '::before').content.replace(/\\W|none/g, '')"
                   ").filter(Boolean)).size", count)
            if width >= 1280:
                expect(browser, f"curves of {count} runs on the first screen of {width} pixels",
                       "[charts.metric, charts.test_loss].every(c => c.figure.getBoundingClientRect().bottom + scrollY <= innerHeight)")
            if shots:
                browser.screenshot(shots / f"columns_{count}_{width}.png")


def contrast(text, ground, fill=(0, 0, 0), opacity=0):
    """Returns the contrast of a text on a ground with a translucent fill, as the Web Content Accessibility Guidelines
    define it. Colours are CSS texts such as "rgb(1, 2, 3)"."""
    def rgb(colour):
        return [float(n) for n in re.findall(r"[\d.]+", colour)[:3]] if isinstance(colour, str) else colour

    def luminance(colour):
        parts = [n / 255 / 12.92 if n / 255 <= 0.04045 else ((n / 255 + 0.055) / 1.055) ** 2.4 for n in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    mixed = [opacity * f + (1 - opacity) * g for f, g in zip(rgb(fill), rgb(ground))]
    low, high = sorted(luminance(c) for c in (rgb(text), mixed))
    return (high + 0.05) / (low + 0.05)


def check_contrast(program, browser):
    """Checks that small texts in coloured places can be read, on a light and on a dark page."""
    for page, width, what in (
            ("run/report.html", 1280, "[...document.querySelectorAll('.matrix g text')].map(t => (r => [getComputedStyle(t).fill, "
             "getComputedStyle(matrix).backgroundColor, getComputedStyle(r).fill, +r.getAttribute('fill-opacity')])(t.previousSibling))"),
            ("columns.html", 390, "[...document.querySelectorAll('.tables td')].map(c => [getComputedStyle(c, '::before').color, "
             "getComputedStyle(c.closest('figure')).backgroundColor])"),
            ("lossy/report.html", 1280, "[...charts.loss.svg.querySelectorAll('.event text')].map(t => [getComputedStyle(t).fill, "
             "getComputedStyle(charts.loss.figure).backgroundColor])")):
        for scheme in ("light", "dark"):
            browser.cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            browser.open(pathlib.Path(page).resolve().as_uri())
            resize(browser, width)
            found = browser.run(f"return {what}")
            if not found or min(contrast(*f) for f in found) < 4.5:
                fail(f"{page}, {scheme}: texts with a contrast of {sorted(round(contrast(*f), 1) for f in found)[:3]}")
    browser.cdp("Emulation.setEmulatedMedia", {"features": []})


def rewrite(run, change):
    """Calls `change` with each record of a run, and writes the changed records."""
    path = pathlib.Path(run, "metrics.jsonl")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for record in records:
        change(record)
    path.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records), encoding="utf-8")


def check_magnitudes(program, browser):
    """Checks that figures and axes of very small and very large values can be read."""
    write_run("small", 1000, name="small", loss="mse")
    append("small", {"type": "eval", "epoch": 2, "test_loss": 3.1234e-5, "test_r2": -12345.678, "test_mae": 1234567.891, "seconds": 1})

    def smaller(record):
        if record["type"] == "step":
            record.update(lr=1e-5 * (1 - record["step"] / 2000), loss=4e-5 * record["loss"])
    rewrite("small", smaller)
    append("small", {"type": "eval", "epoch": 1, "test_loss": 3.5e-5, "test_r2": -3.5, "test_mae": 1, "seconds": 1})
    open_page(program, browser, "small/report.html", "report", "small")
    expect(browser, "room for each label beside its axis",
           "[...document.querySelectorAll('figure svg text')].filter(t => t.getBBox().x < 0).map(t => t.textContent).join()", "")
    expect(browser, "labels of small values", "[charts.loss, charts.lr].every(c => [...c.svg.querySelectorAll('text')].some(t => "
           "/^[1-9](\\.\\d+)?e-\\d$/.test(t.textContent)))")
    expect(browser, "figures of small and large values", "['0.0000312', '1,234,568', '-12,345.6780', '0.000005'].filter(t => "
           "!document.body.innerText.includes(t)).join()", "")
    open_page(program, browser, "metrics.html", "compare", "small", "whole", "--to", "metrics.html")
    expect(browser, "no curves of two metrics on one axis", "[charts.metric.svg.style.display, charts.metric.none.textContent].join()",
           "none,The runs have different metrics (R², accuracy): the table has their values.")
    browser.run("document.querySelectorAll('button.run')[1].click()")
    expect(browser, "the curve of the run that is left", "[charts.metric.svg.style.display, charts.metric.figure.querySelector('figcaption')"
           ".textContent.includes('R²')].join()", ",true")
    rewrite("small", lambda r: r["type"] == "step" and r.update(loss=1e30 * r["loss"]))
    open_page(program, browser, "small/report.html", "report", "small")
    expect(browser, "room for labels of huge values",
           "[...charts.loss.svg.querySelectorAll('text')].filter(t => t.getBBox().x < 0).map(t => t.textContent).join()", "")


def check_fast_runs(program, browser):
    """Checks the comparison of runs whose steps take less than a millisecond."""
    write_run("quick", 1500, name="quick")
    rewrite("quick", lambda r: r["type"] == "epoch" and r.update(seconds=0.2, images_per_s=25000))
    open_page(program, browser, "quick.html", "compare", "quick", "quick", "--to", "quick.html")
    expect(browser, "the rates of epochs", "charts.rate.curves.map(c => c.points.map(p => p.y).join()).join('; ')",
           "25000,25000,25000; 25000,25000,25000")
    expect(browser, "what the rates are", "charts.rate.figure.querySelector('small').textContent",
           "images/s; steps under 1 ms: means of epochs")
    resize(browser, 390)
    expect(browser, "words about the rates in one line on a phone", "charts.rate.figure.querySelector('small').offsetHeight < 30")
    resize(browser, 1280)
    browser.run("[...document.querySelectorAll('.axes button')].find(b => b.textContent === 'time').click()")
    expect(browser, "ticks of a short time", "[...charts.loss.svg.querySelectorAll('text')].filter(t => "
           "t.getAttribute('y') === '231').length >= 3")
    write_run("quicker", 1500, name="quicker")
    rewrite("quicker", lambda r: r["type"] == "epoch" and r.update(seconds=0.002, images_per_s=2500000))
    open_page(program, browser, "quicker.html", "compare", "quick", "quicker", "--to", "quicker.html")
    expect(browser, "the rates of a run that took little of the time are within the frame",
           "charts.rate.svg.querySelectorAll('.beyond').length", 0)


def check_small_losses(program, browser):
    """Checks that a comparison distinguishes runs whose metric is far below 1."""
    for name, value in (("finer", 2.5e-5), ("coarser", 8.1e-5)):
        write_run(name, 500, name=name, loss="mae")
        rewrite(name, lambda r: r["type"] == "run_start" and r["data"].update(targets=1))
        rewrite(name, lambda r: r["type"] == "epoch" and r.update(seconds=0.0003))
        append(name, {"type": "eval", "epoch": 1, "test_loss": value, "test_mae": value, "seconds": 0.0001},
               {"type": "run_end", "time": "2024-01-31T09:31:00Z", "status": "finished", "epochs": 1, "steps": 500})
    open_page(program, browser, "small.html", "compare", "finer", "coarser", "--to", "small.html")
    expect(browser, "the verdict on small values", "document.querySelector('.verdict').textContent",
           "A has the better test mean abs. error, 2.5e-05: 5.6e-05 less than B.")
    expect(browser, "small values in the table", "[...document.querySelectorAll('.tables tr')].filter(r => /^test loss/.test(r.innerText))"
           ".map(r => [...r.querySelectorAll('td')].map(c => c.innerText).join()).join()", "2.5e-05,8.1e-05")
    expect(browser, "a short time in the table", "document.querySelector('.tables').innerText.includes('400 µs')")
    expect(browser, "a separator in large counts", "document.querySelector('.tables').innerText.includes('240,000')")


def check_many_classes(program, browser):
    """Checks the confusion matrix of 1,000 classes, the most that a config can ask for, and of 20 long names."""
    browser.open(pathlib.Path("run/report.html").resolve().as_uri())
    browser.run("const e = last('eval'); e.confusion = [...Array(1000).keys()].map(i => Array(1000).fill(0).fill(5, i, i + 1)); "
                "e.precision = e.recall = Array(1000).fill(1); last('run_start').data.class_names = undefined; render()")
    expect(browser, "the cells of 1,000 classes", "matrix.querySelectorAll('g rect').length", 1000)
    expect(browser, "the rows of 1,000 classes", "classes.querySelectorAll('tbody tr').length", 1000)
    expect(browser, "numbers of classes that do not touch", "(n => n.length > 4 && n.every((b, i) => !i || b.x > n[i - 1].x + n[i - 1].width))"
           "([...matrix.querySelectorAll('text[text-anchor=middle]:not(.side)')].map(t => t.getBBox()))")
    left = "[...matrix.querySelectorAll('text[text-anchor=end]:not([transform])')]"
    for width, seventh in ((390, "7 ankle boots of leather 7"), (1280, "ankle boots of leather 7")):
        resize(browser, width)
        browser.run("const e = last('eval'); e.confusion = [...Array(20).keys()].map(i => Array(20).fill(0).fill(5, i, i + 1)); "
                    "last('run_start').data.class_names = [...Array(20).keys()].map(i => 'ankle boots of leather ' + i); render()")
        expect(browser, f"labels of classes with room on {width} pixels", f"(n => n.length > 3 && n.every((b, i) => b.x >= 16 && "
               f"(!i || b.y >= n[i - 1].y + 0.8 * n[i - 1].height)))({left}.map(t => t.getBBox()))")
        expect(browser, f"a name, with the number in place of it on {width} pixels",
               "classes.querySelectorAll('tbody th')[7].textContent", seventh)
    expect(browser, "names that differ at their ends", "new Set(Array.from({ length: 20 }, (_, i) => shortened("
           "'ankle boots of leather ' + i, 12))).size", 20)


def check_validation(program, browser):
    """Checks that no page calls rows test rows that were held out of the training rows. Only the predictions in a
    report are those of the data's test rows, if the data has such rows."""
    subprocess.run([program, "config.json", "--quiet", "--set", "run_dir=held", "--set", "epochs=2",
                    "--set", "data.validation=0.2"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([program, "report", "held"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([program, "compare", "held", "held", "--to", "held.html"], check=True, stdout=subprocess.DEVNULL)
    for page in ("held/report.html", "held.html"):
        for scripts in (True, False):
            browser.cdp("Emulation.setScriptExecutionDisabled", {"value": not scripts})
            browser.open(pathlib.Path(page).resolve().as_uri())
            text = browser.run("document.querySelectorAll('details').forEach(d => { d.open = true; }); "
                               "document.querySelectorAll('pre, .samples').forEach(p => p.remove()); return document.body.innerText")
            if re.search(r"\btest\b", text, re.IGNORECASE) or not re.search("validation", text, re.IGNORECASE):
                fail(f"{page}, {'with' if scripts else 'without'} scripts, does not call the rows validation rows: {text}")
    browser.cdp("Emulation.setScriptExecutionDisabled", {"value": False})


def append(run, *records):
    with open(f"{run}/metrics.jsonl", "a", encoding="utf-8") as file:
        file.writelines(json.dumps(r, separators=(",", ":")) + "\n" for r in records)


def train(program, name, *more):
    """Trains a run whose weights invented runs have too, and returns its directory and the hash of its weights."""
    subprocess.run([program, "config.json", "--quiet", "--set", f"run_dir={name}", "--set", "epochs=1", *more], check=True,
                   stdout=subprocess.DEVNULL)
    last = pathlib.Path(name, "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    return name, json.loads(last)["weights_sha256"]


def write_lossy(directory, lost, trained, **config):
    """Writes a finished run of 940 steps with the weights of another run, in which a device is lost at step 620 if
    `lost` is set."""
    write_run(directory, 940, devices=2, **config)
    if lost:
        append(directory, {"type": "fault", "worker": 1, "device": "cpu(1)", "step": 620, "kind": "device", "action": "continue",
                           "devices_left": 1, "error": "the device failed"},
               {"type": "fault", "worker": 0, "device": "cpu(0)", "step": 630, "kind": "memory", "action": "repeat",
                "devices_left": 1, "error": "no memory"})
    append(directory, {"type": "eval", "epoch": 1, "test_loss": 0.5, "test_accuracy": 0.8, "seconds": 1},
           {"type": "run_end", "time": "2024-01-31T09:31:00Z", "status": "finished", "epochs": 1, "steps": 940,
            "devices": ["cpu(0)"] if lost else ["cpu(0)", "cpu(1)"], "weights_sha256": trained[1]})
    shutil.copy(f"{trained[0]}/weights.safetensors", directory)


def open_page(program, browser, page, *verb):
    subprocess.run([program, *verb], check=True, stdout=subprocess.DEVNULL)
    browser.open(pathlib.Path(page).resolve().as_uri())


def check_equal(program, browser, shots):
    """Checks that the comparison of runs with the same weights says so, that both of two curves that coincide are
    visible, and that a lost device is shown on its run's curves only."""
    first, second = train(program, "first"), train(program, "second", "--set", "seed=2")
    for name, lost, trained in (("lossy", True, first), ("other", False, first), ("third", False, second)):
        write_lossy(name, lost, trained, name=name)
    open_page(program, browser, "equal.html", "compare", "lossy", "third", "other", "--to", "equal.html")
    said = "[...document.querySelectorAll('.note.good')].map(n => n.innerText.replace(/\\s+/g, ' ')).join('; ')"
    expect(browser, "the runs with the same weights", said, f"A, C: identical weights {first[1]} copy")
    green = browser.run("return getComputedStyle(document.querySelector('.note.good strong')).color").strip("rgb()").split(",")
    if not int(green[1]) > int(green[0]) + 60:
        fail(f"the note is not green but {green}")
    expect(browser, "dashes of curves that coincide", "[...charts.loss.svg.querySelectorAll('.curve')].map(c => "
           "getComputedStyle(c).strokeDasharray).join('; ')", "none; 8px, 8px; 4px, 12px")
    expect(browser, "both of two dots that coincide", "new Set([...charts.metric.svg.querySelectorAll('circle')].map(c => "
           "c.getAttribute('r'))).size", 2)
    lost = "[...charts.loss.svg.querySelectorAll('.event')].map(e => e.querySelector('title').textContent).join('; ')"
    expect(browser, "marks on the curves", lost, "A: cpu(1) lost at step 620; A: step 630 repeated")
    expect(browser, "the figures of the lost device", "[...document.querySelectorAll('.tables tr')].filter(r => "
           "/lost or admitted/.test(r.innerText)).map(r => r.querySelector('td').innerText).join()", "cpu(1) lost at step 620")
    expect(browser, "the unit of the throughput", "charts.rate.figure.querySelector('small').textContent", "images/s")
    for key in ("epoch", "time"):
        browser.run(f"[...document.querySelectorAll('.axes button')].find(b => b.textContent === '{key}').click()")
        expect(browser, f"a mark within the frame, by {key}", "charts.loss.svg.querySelectorAll('.event').length", 2)
    browser.run("document.querySelector('.run').click()")
    expect(browser, "no mark of a hidden run", lost, "")
    verdict = "[...document.querySelectorAll('.verdict')].map(p => p.textContent).join()"
    expect(browser, "the verdict on equal accuracies", verdict, "A, B, C have the same test accuracy, 0.8000.")
    if shots:
        browser.screenshot(shots / "equal.png")
    open_page(program, browser, "differ.html", "compare", "lossy", "third", "--to", "differ.html")
    expect(browser, "no word of equal weights", said, "")
    for accuracy, wanted in ((0.5, "A has the better test accuracy, 0.8000: 0.3000 more than B. With 10 rows a difference of up to "
                              "0.4050 can be chance."),
                             (0.1, "A has the better test accuracy, 0.8000: 0.7000 more than B.")):
        path = pathlib.Path("third/metrics.jsonl")
        path.write_text(re.sub(r'"test_accuracy":[.\d]+', f'"test_accuracy":{accuracy}', path.read_text(encoding="utf-8")), encoding="utf-8")
        open_page(program, browser, "differ.html", "compare", "lossy", "third", "--to", "differ.html")
        expect(browser, "which run is better", verdict, wanted)
    write_run("fork", 940, name="fork", optimizer={"lr": 0.1})
    path = pathlib.Path("fork/metrics.jsonl")
    path.write_text(re.sub(r'("step":[5-9]\d\d,.*?"loss":)', r"\g<1>1", path.read_text(encoding="utf-8")), encoding="utf-8")
    open_page(program, browser, "fork.html", "compare", "lossy", "fork", "--to", "fork.html")
    expect(browser, "the curve that leaves another one", "[...charts.loss.svg.querySelectorAll('.curve')].map(c => "
           "c.classList.contains('twin')).sort().join()", "false,false,true")


def check_forged(program, browser, shots):
    """Checks that no green note stands beside a file with other weights than its records say, beside a damaged file, and
    beside records that contradict each other; and that a comparison shows other data beside equal configs."""
    first, second = train(program, "ada"), train(program, "eve", "--set", "seed=2")
    loud = "[...document.querySelectorAll('.note.loud')].map(n => n.innerText.replace(/\\s+/g, ' ')).filter(t => " \
        "!t.startsWith('SYNTHETIC')).join('; ')"
    shutil.copytree("ada", "swapped")
    shutil.copy("eve/weights.safetensors", "swapped")
    said = f"has other weights than its records say: their SHA-256 is {second[1][:16]}…, not {first[1][:16]}…"
    for other in ("ada", "eve"):
        open_page(program, browser, "forged.html", "compare", other, "swapped", "--to", "forged.html")
        expect(browser, "a red note about the file", loud, f"Warning: weights.safetensors of B {said}")
        expect(browser, "no green note", "document.querySelectorAll('.note.good').length", 0)
    open_page(program, browser, "swapped/report.html", "report", "swapped", "--samples", "0")
    expect(browser, "a red note in the report", loud, f"Warning: weights.safetensors {said}")
    expect(browser, "the hash of the file", "places.hash.querySelector('code').textContent", second[1])
    shutil.copytree("ada", "flipped")
    path = pathlib.Path("flipped/weights.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    open_page(program, browser, "flipped/report.html", "report", "flipped", "--samples", "0")
    expect(browser, "a red note about the damage", f"/^Warning: weights.safetensors cannot be read: .*is damaged/.test({loud})")
    expect(browser, "no hash of a damaged file", "places.hash.querySelector('code')", None)
    shutil.copytree("ada", "better")
    rewrite("better", lambda r: r.update(test_accuracy=0.7799) if r["type"] == "eval" else
            r["data"].update(sha256="ab" * 32) if r["type"] == "run_start" else None)
    rewrite("ada", lambda r: r.update(test_accuracy=0.8022) if r["type"] == "eval" else
            r["data"].update(sha256="cd" * 32) if r["type"] == "run_start" else None)
    open_page(program, browser, "forged.html", "compare", "ada", "better", "flipped", "--to", "forged.html")
    expect(browser, "a red note about the records", f"{loud}.includes('A, B: identical weights {first[1]} copy The records contradict "
           "each other: on the same rows the same weights have the test accuracy 0.8022 in A and 0.7799 in B.')")
    expect(browser, "no green note", "document.querySelectorAll('.note.good').length", 0)
    expect(browser, "equal configs and other data", "[...document.querySelectorAll('.tables figure')].slice(1).map(f => "
           "f.innerText.replace(/\\s+/g, ' ').trim()).join('; ').replace(/[ABC] (?=[a-f\\d]{16}|–)/g, '')",
           "What the configs differ in The configs are equal.; The data differ A B C data's SHA-256 (training rows) "
           "cdcdcdcdcdcdcdcd abababababababab –")
    for width in (390, 1280):
        resize(browser, width)
        expect(browser, f"no page wider than {width} pixels", "document.documentElement.scrollWidth <= innerWidth")
        if shots:
            browser.screenshot(shots / f"forged_{width}.png")


def check_changes(program, browser, shots):
    """Checks what a report shows of a lost device, of values beyond the frame, and of ticks and tables on a phone."""
    open_page(program, browser, "lossy/report.html", "report", "lossy")
    expect(browser, "the devices that are left", "[...document.querySelectorAll('.tile')].find(t => /^Devices/.test(t.innerText))"
           ".innerText.replace(/\\s+/g, ' ')", "Devices 1 at the end, 2 at the start cpu(0) cpu(1) lost at step 620")
    expect(browser, "marks on the curve", "charts.loss.svg.querySelectorAll('.event').length", 2)
    expect(browser, "when the devices had their share of a minibatch", "[...document.querySelectorAll('.tile')].find(t => "
           "/^Minibatch/.test(t.innerText)).innerText.includes('per device at the start,')")
    browser.run("last('eval').confusion = [[9, 1], [2, 7]]; Object.assign(last('eval'), { precision: [0.8182, 0.875], recall: [0.9, 0.7778] });"
                "last('run_start').data.class_names = ['ankle boots of leather', 'sneakers_of_another_maker']; render()")
    for width in (390, 1280):
        resize(browser, width)
        expect(browser, f"at least three ticks on {width} pixels", "Math.min(...[charts.loss, charts.lr, charts.rate].map(c => "
               "[...c.svg.querySelectorAll('text')].filter(t => t.getAttribute('y') === '231').length)) >= 3")
        expect(browser, f"ticks that do not touch on {width} pixels", "[charts.loss, charts.lr, charts.rate].every(c => "
               "[...c.svg.querySelectorAll('text')].filter(t => t.getAttribute('y') === '231').map(t => t.getBBox())"
               ".every((b, i, all) => !i || b.x > all[i - 1].x + all[i - 1].width + 4))")
        expect(browser, f"a table of classes that is not cut on {width} pixels",
               "(s => s.scrollWidth <= s.clientWidth)(classes.querySelector('.scroll'))")
    if shots:
        browser.screenshot(shots / "changes.png")
    write_run("hosts", 940, devices=1)
    append("hosts", {"type": "arrival", "host": "b", "step": 310, "devices": ["a: cpu(0)", "b: cpu(0)", "b: cpu(1)", "c: cpu(0)"]},
           {"type": "fault", "worker": -1, "device": "b", "step": 640, "kind": "host", "action": "continue", "devices_left": 2,
            "error": "b does not answer"})
    open_page(program, browser, "hosts/report.html", "report", "hosts")
    expect(browser, "the devices of the hosts", "[...document.querySelectorAll('.tile')].find(t => /^Devices/.test(t.innerText))"
           ".innerText.replace(/\\s+/g, ' ')",
           "Devices 2 now, 1 at the start a: cpu(0), c: cpu(0) b admitted after step 310 b lost at step 640")
    expect(browser, "the signs of the hosts", "[...charts.loss.svg.querySelectorAll('.event text')].map(t => t.textContent).join()", "+,−")
    write_run("refused", 200)
    append("refused", *({"type": "nonfinite", "step": step, "worker": 0, "shard": 2} for step in (20, *range(80, 120))))
    open_page(program, browser, "refused/report.html", "report", "refused")
    expect(browser, "one note of successive steps", "places.notes.innerText.match(/Steps? [^.]*\\. [^.]*\\./g).join(' ')",
           "Step 20 was not applied. The loss of shard 2, on worker 0, was not finite. "
           "Steps 80 to 119 were not applied. Their losses were not finite.")
    append("refused", *({"type": "nonfinite", "step": step, "worker": 0, "shard": 2} for step in range(130, 150, 2)))
    open_page(program, browser, "refused/report.html", "report", "refused")
    expect(browser, "many notes folded above the figures", "[...document.querySelectorAll('.notes details')].map(d => "
           "`${d.firstChild.textContent}, ${d.querySelectorAll('.note').length} notes, ${d.open}`).join()", "12 events, 12 notes, false")
    browser.run("document.querySelector('.notes details').open = true; render()")
    expect(browser, "notes that stay open", "document.querySelector('.notes details').open")
    expect(browser, "small sizes and times", "[bytes(36), bytes(2048), duration(0.00008), duration(0.012), duration(4), duration(75)]"
           ".join('; ')", "36 bytes; 2.0 kB; 80 µs; 12 ms; 4.0 s; 1 min 15 s")
    expect(browser, "the epochs of a run whose first records are missing",
           "/epochs: 40 of/.test(progress_tile({ ...summary(), epochs: [{ epoch: 40, seconds: 1 }] }).textContent)")
    browser.run("run.times = { steps: 1000, workers: [{ gather_s: 0.005, forward_s: 0.0125 }] }; draw_times()")
    expect(browser, "the unit of short times", "times.querySelector('small').textContent + ' ' + times.querySelectorAll('td')[1].textContent",
           "µs, mean 12.50")
    open_page(program, browser, "bursts/report.html", "report", "bursts")
    expect(browser, "arrows above values beyond the frame", "charts.rate.svg.querySelectorAll('.beyond').length > 0")
    expect(browser, "how far they are beyond it", "charts.rate.legend.innerText.includes('up to 900 M')")
    expect(browser, "no arrows where all is within the frame", "charts.loss.svg.querySelectorAll('.beyond').length", 0)


def check_head(program, browser, shots):
    """Checks the hash with its button, the verdict of a verification, the names of the user's data, and the
    projector mode."""
    trained = train(program, "proof")
    write_lossy("proved", False, trained, data={"name": "csv", "path": "/srv/shop/customers.csv"}, name="proved")
    path = pathlib.Path("proved/metrics.jsonl")
    path.write_text(path.read_text(encoding="utf-8").replace('"name":"made"', '"name":"csv","source":"/srv/shop/customers.csv"'),
                    encoding="utf-8")
    for holds, weights, result, wanted in (
            (True, trained[1], "verified: the whole training was replayed and ends with the same weights", "finished,verified"),
            (True, trained[1], "not refuted: 3 of 9 segments were replayed, and nothing differs", "finished,not refuted"),
            (False, trained[1], "NOT verified: segment 2 of 9: the replay differs", "finished,NOT verified"),
            (True, trained[1][::-1], "verified: the weights before the run was resumed", "finished")):
        pathlib.Path("proved/verified.json").write_text(json.dumps({"holds": holds, "weights_sha256": weights, "result": result}),
                                                        encoding="utf-8")
        open_page(program, browser, "proved/report.html", "report", "proved", "--samples", "0")
        expect(browser, "the verdict", "[...document.querySelectorAll('.head .state')].map(s => s.textContent).join()", wanted)
        named = "places.facts.innerText.includes('(according to verified.json in the run’s directory)')"
        expect(browser, "where the verdict is from", named, "," in wanted)
        expect(browser, "a loud note of a refuted run", "document.querySelectorAll('.note.loud').length", int(not holds))
    expect(browser, "an even share of a minibatch", "document.querySelector('.tiles').innerText.includes('per device,')")
    expect(browser, "the user's name of the data", "[...document.querySelectorAll('.tile')].find(t => /^Data/.test(t.innerText))"
           ".querySelector('dd').textContent", "customers.csv")
    expect(browser, "the hash above the figures", "places.hash.querySelector('code').textContent", trained[1])
    box = browser.run("const b = places.hash.querySelector('button').getBoundingClientRect(); return [b.left + 5, b.top + 5]")
    browser.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [
        {"type": "pointerMove", "duration": 0, "x": int(box[0]), "y": int(box[1])},
        {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]}]})
    expect(browser, "the copied hash", "places.hash.querySelector('button').textContent + ' ' + getSelection()", f"copied {trained[1]}")
    size = "charts.loss.svg.querySelector('text').getBoundingClientRect().height"
    for page in ("proved/report.html", "equal.html"):
        browser.open(pathlib.Path(page).resolve().as_uri())
        resize(browser, 1280)
        normal = browser.run(f"return {size}")
        press(browser, "p")
        wait_for("larger type", lambda: browser.run("return getComputedStyle(document.body).fontSize") == "22.5px")
        wait_for("larger type in charts", lambda: browser.run(f"return {size}") > 1.4 * normal)
        browser.call("POST", "/refresh", {})
        expect(browser, "larger type after a reload", "getComputedStyle(document.body).fontSize", "22.5px")
        for width in (390, 1280, 1920):
            resize(browser, width)
            if width > 390:
                # The charts are drawn again some time after the width has changed.
                wait_for(f"type that can be read on a wall, on {width} pixels", lambda: browser.run(
                    "return [...document.querySelectorAll('small, .run, .detail, .legend, td, .hint, .hash code')].every(e => "
                    "parseFloat(getComputedStyle(e).fontSize) >= 24) && [...document.querySelectorAll('.charts svg')].filter(s => "
                    "s.clientWidth).every(s => 12 * s.getBoundingClientRect().width / s.viewBox.baseVal.width >= 22)"))
                wait_for(f"room for each label in larger type, on {width} pixels", lambda: browser.run(
                    "return Object.values(charts).flatMap(c => [...c.svg.querySelectorAll('text')]).every(t => t.getBBox().x >= 0)"))
            if shots:
                browser.screenshot(shots / f"large_{page.split('.')[0].replace('/', '_')}_{width}.png")
        browser.run("const e = charts.loss.svg, b = e.getBoundingClientRect(); e.dispatchEvent(new PointerEvent('pointermove', "
                    "{ clientX: b.left + 0.9 * b.width })); window.read = charts.loss.cursor")
        if not 800 < browser.run("return window.read") < 900:
            fail(f"the mouse reads step {browser.run('return window.read')} with larger type")
        browser.run("big_link.click()")
        wait_for("normal type", lambda: browser.run("return getComputedStyle(document.body).fontSize") == "15px")


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
            check_parts(program, browser, shots)
            check_norms(program, browser, shots)
            check_compare(program, browser, shots)
            check_columns(program, browser, shots)
            check_validation(program, browser)
            check_magnitudes(program, browser)
            check_small_losses(program, browser)
            check_many_classes(program, browser)
            check_fast_runs(program, browser)
            check_long_report(program, browser, shots)
            check_bursts(program, browser)
            check_equal(program, browser, shots)
            check_forged(program, browser, shots)
            check_changes(program, browser, shots)
            check_contrast(program, browser)
            check_head(program, browser, shots)
            check_hostile_report(program, browser)
            complaints = browser.complaints()
            if complaints:
                fail(f"the pages complained: {complaints}")
        finally:
            browser.close()
    print("the page followed the run, noticed its end, and followed the next one")


if __name__ == "__main__":
    main()
