"""LTTng-UST as the benchmarks use it: a session daemon that belongs to one run, and recordings of single programs.

Nothing of it is shared with the machine's other users of LTTng. Home and socket of the daemon and all traces lie in a
temporary folder, which goes when the daemon ends. LTTng gives root no daemon of its own, so root's runs as nobody.
"""

import contextlib
import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

WRAPPER = "liblttng_wrapper.so"
# The files that are measured, in copies that nobody may read wherever the checkout lies.
MEASURED = ("call_cost", "libcudart.so.12", "libcuda.so.1", WRAPPER)
# A ring of 16 MiB for each core. In that of 2 MiB that LTTng takes by itself, a third and more of 8 threads' events got lost.
CHANNEL = ("--subbuf-size=2M", "--num-subbuf=8")
# A header of 4 bytes, and the fields of lttng_copies.h; of both events of a call.
CALL_BYTES = 4 + 1 + 4 * 8 + 4 + 1 + 4
TIMEOUT_S = 120


def why_not(folder):
    """Why LTTng cannot be measured here; none if it can."""
    missing = [tool for tool in ("lttng-sessiond", "lttng") if not shutil.which(tool)]
    if not os.path.exists(os.path.join(folder, WRAPPER)):
        missing.append("lttng/tracepoint.h of LTTng-UST 2.13 or later")
    return f"this machine has no {' and no '.join(missing)}" if missing else None


def end_on_signals():
    """A signal that ends this process does so by way of what cleans up."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


@contextlib.contextmanager
def session(folder, env):
    """A Session for the programs in `folder`, with a daemon that ends with it; none, and a word why, without LTTng."""
    reason = why_not(folder)
    if reason:
        print(f"skipped: lttng, since {reason}; apt-get install liblttng-ust-dev lttng-tools\n", flush=True)
        yield None
        return
    end_on_signals()
    shared = set(glob.glob("/dev/shm/lttng-ust-*"))
    with tempfile.TemporaryDirectory(prefix="p2pshim-lttng-") as home:
        opened = Session(folder, home, env)
        try:
            opened.start()
            yield opened
        finally:
            opened.end()
            for path in set(glob.glob("/dev/shm/lttng-ust-*")) - shared:
                os.unlink(path)


class Session:
    def __init__(self, folder, home, env):
        self.home = home
        self.trace = os.path.join(home, "trace")
        self.events = self.lost = 0
        kept = {name: value for name, value in env.items() if not name.startswith("LTTNG")}
        # The program waits until its events are enabled.
        self.env = kept | {"LTTNG_HOME": home, "HOME": home, "LTTNG_UST_REGISTER_TIMEOUT": "-1"}
        for name in MEASURED:
            shutil.copy(os.path.join(folder, name), home)
        self.user = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self.user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(home, nobody.pw_uid, nobody.pw_gid)

    def run(self, *command, **env):
        """Standard output of a program that must succeed, and what it said on standard error."""
        done = subprocess.run(
            command, env=self.env | env, cwd=self.home, capture_output=True, text=True, timeout=TIMEOUT_S, **self.user
        )
        if done.returncode != 0:
            sys.exit(f"lttng_session: {' '.join(command)}: status {done.returncode}\n{done.stderr}")
        return done.stdout, done.stderr

    def lttng(self, *arguments):
        # No group: members of `tracing` would be sent to the daemon of the whole machine.
        return self.run("lttng", "--group=-", "--no-sessiond", *arguments)[0]

    def start(self):
        self.run("lttng-sessiond", "--daemonize", "--no-kernel")

    def end(self):
        file = os.path.join(self.home, ".lttng", "lttng-sessiond.pid")
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(OSError, ValueError):
                with open(file) as text:
                    os.kill(int(text.read()), number)
            # It removes the file when all is done.
            until = time.monotonic() + 10
            while os.path.exists(file) and time.monotonic() < until:
                time.sleep(0.05)
            if not os.path.exists(file):
                return

    def call_cost(self, *arguments, look=None):
        """The answer of call_cost while a new session records its calls; `look` is then given the trace's folder."""
        threads, calls = int(arguments[2]), int(arguments[3])
        self.lttng("create", "copies", f"--output={self.trace}")
        try:
            self.lttng("enable-channel", "--userspace", *CHANNEL, "copies")
            self.lttng("enable-event", "--userspace", "p2pshim_bench:*", "--channel=copies")
            self.lttng("start")
            program = os.path.join(self.home, "call_cost")
            answer, complaint = self.run(program, *arguments, WRAPPER, LD_PRELOAD=os.path.join(self.home, WRAPPER))
            self.lttng("stop")
            if complaint:
                sys.exit(f"lttng_session: {' '.join(arguments)}: {complaint}")
            self.count(threads * calls)
            if look:
                look(self.trace)
        finally:
            self.lttng("destroy", "copies")
            shutil.rmtree(self.trace, ignore_errors=True)
        return float(answer)

    def count(self, calls):
        """Counts the events of so many calls, and those that LTTng lost; the others must be in the trace, by its size."""
        text = self.lttng("--mi", "xml", "list", "copies")
        # LTTng 2.13 at times gives the counter of the ring with its highest bit set.
        lost = sum(int(number) % 2**63 for number in re.findall("<discarded_events>([0-9]+)<", text))
        size = sum(entry.stat().st_size for entry in os.scandir(self.stream_folder()))
        self.events += 2 * calls
        self.lost += lost
        if lost == 0 and size < CALL_BYTES * calls:
            sys.exit(f"lttng_session: {size} bytes for {calls} calls are no trace")

    def stream_folder(self):
        found = glob.glob(os.path.join(self.trace, "**", "metadata"), recursive=True)
        if len(found) != 1:
            sys.exit(f"lttng_session: {len(found)} traces where one was recorded")
        return os.path.dirname(found[0])

    def check(self, route, threads=8, calls=1000, warm_up=1000):
        """Reads a trace back: it must have each call whole. Answers whether there is something to read it with."""
        if not shutil.which("babeltrace2"):
            return False
        begun = re.compile(r":begin: .*function = [01], src = 0x7F\w+, dst = 0x7F\w+, bytes = 256, stream = 0x0 }")
        ended = re.compile(r":end: .*function = [01], result = 0 }")

        def look(trace):
            lines = self.run("babeltrace2", trace)[0].splitlines()
            made = threads * (calls + warm_up)
            for what in (begun, ended):
                seen = sum(1 for line in lines if what.search(line))
                if seen != made:
                    sys.exit(f"lttng_session: {route}: {seen} of {made} events like {what.pattern}")

        self.call_cost(route, "pair", str(threads), str(calls), look=look)
        return True
