#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""meeting.py TRAINER [--apart S]: three hosts, each a network namespace, connect through address
translation and train.

Each host is on a network of its own. A fourth namespace, the gateway, translates addresses between
them:

    service      the other hosts join a service's address, 10.96.0.10, which no host has; the
                 gateway connects to the first host from its own address, so that the first host
                 sees only the gateway's address (like Kubernetes' services and Docker's proxy)
    published    as `service`; in addition, host 2 reaches host 3 only at a published port of the
                 gateway, which host 3 advertises (--advertise)

Each time the weights must be the weights of a run on one machine. The first host starts after one
host and before the other, and hosts start S seconds apart. Then errors must be reported at once, by
the names of the hosts, on both sides. Needs root, iproute2 and nft; without them the test is skipped
(77) with the reason. The test removes everything that it creates.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import hosts

SERVICE, PORT = "10.96.0.10", 7070
# The address is lower than that of host 2 as host 1 sees it, so that host 2 is the one that
# connects.
PUBLISHED, PUBLISHED_AT = "10.66.0.1", 7073
PATIENCE_S = 120


def must(space, *words, text=None):
    done = subprocess.run(["ip", "netns", "exec", space, *words], check=False, input=text, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stdout.strip()}")


class Translated(hosts.Hosts):
    """Namespaces NAME1 … NAME3 and a gateway, NAMEbr, between them. Host i has the address
    10.77.i.2; the gateway has 10.77.i.1 on the link to it."""

    def __enter__(self):
        gateway = self.space("br")
        try:
            self.add(gateway)
            must(gateway, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            for i in range(1, self.count + 1):
                space = self.space(i)
                self.add(space)
                hosts.ip("link", "add", "e0", "netns", space, "type", "veth", "peer", "name", f"p{i}", "netns", gateway)
                hosts.ip("-n", gateway, "addr", "add", f"10.77.{i}.1/24", "dev", f"p{i}")
                hosts.ip("-n", gateway, "link", "set", f"p{i}", "up")
                hosts.ip("-n", space, "addr", "add", f"10.77.{i}.2/24", "dev", "e0")
                hosts.ip("-n", space, "link", "set", "e0", "up")
                hosts.ip("-n", space, "route", "add", "default", "via", f"10.77.{i}.1")
            self.translate("")
        except OSError as why:
            self.__exit__()
            hosts.skip(f"no addresses can be translated: {why}")
        return self

    def translate(self, more, own=""):
        """Translates the service's address to host 1's. Host 1 sees the gateway as the sender.
        `more`: further rules; `own`: rules for packets that the gateway itself sends."""
        must(self.space("br"), "nft", "-f", "-", text=f"""
            flush ruleset
            table ip t {{
              chain to {{
                type nat hook prerouting priority -100;
                ip daddr {SERVICE} tcp dport {PORT} dnat to 10.77.1.2:{PORT}
                ip daddr {PUBLISHED} tcp dport {PUBLISHED_AT} dnat to 10.77.3.2:{PUBLISHED_AT}
              }}
              chain from {{
                type nat hook postrouting priority 100;
                ip daddr 10.77.1.2 masquerade
              }}
              chain through {{
                type filter hook forward priority 0;
                {more}
              }}
              chain own {{
                type filter hook output priority 0;
                {own}
              }}
            }}""")

    def narrow(self, i, mtu):
        """Sets the MTU of the gateway's end of the link to host i."""
        hosts.ip("-n", self.space("br"), "link", "set", f"p{i}", "mtu", str(mtu))


class Host:
    """A trainer in a namespace, with its stderr in a file."""

    def __init__(self, test, i, *words, before="true"):
        self.test, self.i = test, i
        self.path = test.scratch / f"said.{test.runs}.{i}"
        name = f"h{i}"
        command = f"hostname {name}; {before}; exec {test.program} c.json --devices cpu:1 --secret secret {' '.join(words)}"
        with open(self.path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", test.hosts.space(i), "unshare", "-um", "sh", "-c", command], cwd=test.scratch,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def said(self):
        return self.path.read_text(encoding="utf-8")

    def has_said(self, *texts):
        for text in texts:
            if text not in self.said():
                self.test.fail(f"host {self.i} has not said: {text}")

    def await_said(self, text):
        until = time.time() + PATIENCE_S
        while text not in self.said():
            if time.time() > until or self.process.poll() is not None:
                self.test.fail(f"host {self.i} does not say: {text}")
            time.sleep(0.02)

    def code(self):
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return self.test.fail(f"host {self.i} does not end")


class Test:
    def __init__(self, program, spaces, scratch, apart_s):
        self.program, self.hosts, self.scratch, self.apart_s = program, spaces, scratch, apart_s
        self.runs = 0
        config = dict(hosts.CONFIG, epochs=2, eval_every=1)
        (scratch / "c.json").write_text(json.dumps(config))
        (scratch / "secret").write_bytes(os.urandom(32))
        (scratch / "secret").chmod(0o444)  # the mode that Docker gives to secrets
        self.expected = None

    def fail(self, why):
        for path in sorted(self.scratch.glob(f"said.{self.runs}.*")):
            print(path.name, path.read_text(encoding="utf-8"), sep="\n")
        raise SystemExit(f"FAILED: {why}")

    def hash_of(self, directory):
        for line in reversed((self.scratch / directory / "metrics.jsonl").read_text().splitlines()):
            record = json.loads(line)
            if record["type"] == "run_end":
                return record["weights_sha256"]
        return self.fail(f"{directory} has no end")

    def alone(self):
        subprocess.run([self.program, "c.json", "--devices", "cpu:1", "--quiet", "--set", "run_dir=alone"], cwd=self.scratch,
                       check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
        self.expected = self.hash_of("alone")

    def start(self, i, *words, before="true"):
        return Host(self, i, *words, "--members", "3", "--set", f"run_dir=met-{self.runs}", before=before)

    def meets(self, what, third):
        """Host 2 is started first, then host 1, which is the first member, then host 3. They must
        connect."""
        self.runs += 1
        second = self.start(2, "--join", f"{SERVICE}:{PORT}")
        second.await_said(f"nobody answers at {SERVICE}:{PORT} (")
        time.sleep(self.apart_s)
        first = self.start(1, "--listen", f":{PORT}")
        first.await_said("2 of 3 have come: h1, h2; waiting for 1")
        second.await_said("2 of 3 have come: h1, h2; waiting for 1")
        time.sleep(self.apart_s)
        last = self.start(3, "--join", f"{SERVICE}:{PORT}", *third)
        for host in first, second, last:
            if host.code():
                self.fail(f"host {host.i} ended with {host.code()}")
            host.has_said("all 3 have come: ", "may read this secret (mode 0444)")
        first.has_said("1 of 3 have come: h1; waiting for 2", "host h1 is the first of 3", "\ntest acc: ")
        for host in second, last:
            host.has_said("of 3; host h1 keeps the run", "of 3 has ended: test acc: ")
        if self.hash_of(f"met-{self.runs}") != self.expected:
            self.fail("other weights than one machine's")
        print(f"{what}: three hosts, started {self.apart_s:g} s apart, have one machine's weights", flush=True)

    def unreached(self):
        """Host 3 can be reached only at its published port, but was not told to advertise it. All
        hosts must fail at once and name host 3."""
        self.runs += 1
        started = [self.start(1, "--listen", f":{PORT}"), self.start(2, "--join", f"{SERVICE}:{PORT}"),
                   self.start(3, "--join", f"{SERVICE}:{PORT}")]
        for host in started:
            if host.code() != 71:
                self.fail(f"host {host.i} ended with {host.code()}, not 71")
            host.has_said("cannot be reached from host h", "say --advertise ADDRESS:PORT on h")
        print("a host that others do not reach is named on all", flush=True)

    def narrow(self):
        """Long messages to and from host 2 are lost without a report of the network; short messages
        arrive. All hosts must name the link."""
        self.runs += 1
        deadline = ["--set", "cluster.deadline_s=2"]
        started = [self.start(1, "--listen", f":{PORT}", *deadline),
                   *(self.start(i, "--join", f"{SERVICE}:{PORT}", *deadline) for i in (2, 3))]
        for host in started:
            if host.code() != 71:
                self.fail(f"host {host.i} ended with {host.code()}, not 71")
            host.has_said("nothing has come or gone between host h", "(ip link show: the MTU)")
            if "between host h2 and host h" not in host.said() and "and host h2, though" not in host.said():
                self.fail(f"host {host.i} does not name host 2")
        print("a link of another MTU is told from a lost host", flush=True)

    def wrong(self):
        """If a host cannot join, it and the first host must both say which host it is and why."""
        self.runs += 1
        first = self.start(1, "--listen", f":{PORT}", "--wait", "20")
        first.await_said("1 of 3 have come")
        (self.scratch / "other").write_bytes(os.urandom(32))
        (self.scratch / "other").chmod(0o600)
        joins = ["--join", f"{SERVICE}:{PORT}"]
        other = self.start(2, *joins, "--secret", "other")
        if other.code() != 71:
            self.fail("another secret was taken")
        other.has_said("does not know this run's secret")
        first.await_said("host h2 (10.77.1.1) has another secret (take the same file on all hosts")
        fewer = Host(self, 3, *joins, "--members", "2")
        if fewer.code() != 64:
            self.fail("another number of members was taken")
        fewer.has_said("this host expects 2 members, host h1, the first, 3")
        first.await_said("host h3 (10.77.1.1) expects 2 members where this one expects 3")
        first.process.send_signal(signal.SIGTERM)
        if first.code() != 130:
            self.fail("one that waits does not end by a signal")
        # Debian's installer writes such a line for the machine's own name.
        known = "127.0.0.1 localhost\\n127.0.1.1 a-name\\n"
        itself = self.start(2, "--join", "a-name:7070", before=f"printf '{known}' >own; mount --bind own /etc/hosts")
        if itself.code() != 64:
            self.fail("a name that is loopback was taken")
        itself.has_said("a-name is 127.0.1.1 here (/etc/hosts), which no other host reaches: say --listen :7070 on this host")
        nobody = self.start(2, "--join", "10.99.9.9:7070", "--wait", "2")
        if nobody.code() != 71:
            self.fail("an address of no host was taken")
        nobody.has_said("nobody answers at 10.99.9.9:7070 (")
        print("another secret, other members, a name for the host itself, an address of no host, and a signal: each was said", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", type=pathlib.Path)
    parser.add_argument("--apart", type=float, default=0.5, help="seconds between the starts of two hosts")
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the namespaces are removed
    if os.geteuid() != 0:
        hosts.skip("network namespaces are root's")
    for tool in ("ip", "unshare", "nft", "sysctl"):
        if not shutil.which(tool):
            hosts.skip(f"{tool} is missing: third_party/setup.sh hosts")
    with tempfile.TemporaryDirectory() as folder, Translated(3) as spaces:
        hosts.clean_environment(folder)
        test = Test(args.trainer.resolve(), spaces, pathlib.Path(folder), args.apart)
        test.alone()
        test.meets("a service", [])
        test.wrong()
        spaces.translate("", own="ip protocol icmp drop")
        spaces.narrow(2, 1000)
        test.narrow()
        spaces.narrow(2, 1500)
        there, back = "ip saddr 10.77.2.2 ip daddr 10.77.3.2", "ip saddr 10.77.3.2 ip daddr 10.77.2.2"
        spaces.translate(f"{there} ct status dnat accept; {there} ct state new drop; "
                         f"{back} ct state new ip protocol tcp reject with tcp reset")
        test.meets("a published port", ["--listen", f":{PUBLISHED_AT}", "--advertise", f"{PUBLISHED}:{PUBLISHED_AT}"])
        spaces.translate(f"{there} reject; {back} reject")
        test.unreached()


if __name__ == "__main__":
    main()
