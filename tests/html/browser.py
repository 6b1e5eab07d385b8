"""A headless Chromium, spoken to through two pipes in its DevTools protocol."""

import base64
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
]
# Seconds until an answer is given up.
PATIENCE = 60


class Browser:
    """One browser with one page. What the page reports by itself is kept in `events`."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="p2pshim-html-")
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        # The protocol wants descriptors 3 and 4.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$0" "$@" 3<&{commands} 4>&{answers}', program, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            # If it is killed, its leftovers go away with its profile.
            pass_fds=(commands, answers), env={**os.environ, "TMPDIR": self.profile}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.unread, self.number, self.session, self.events = b"", 0, None, []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def _message(self, deadline):
        while b"\0" not in self.unread:
            if not select.select([self.answers], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"the browser has not answered for {PATIENCE} s")
            some = os.read(self.answers, 1 << 20)
            if not some:
                raise EOFError("the browser has ended")
            self.unread += some
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        # Larger than a pipe holds is no message of ours, so this does not block.
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def wait_for(self, event):
        deadline = time.monotonic() + PATIENCE
        while not any(e["method"] == event for e in self.events):
            message = self._message(deadline)
            if "method" in message:
                self.events.append(message)

    def open(self, file):
        self.events.clear()
        self.call("Page.navigate", url=pathlib.Path(file).resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def js(self, expression):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def media(self, media="", theme="light"):
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": theme}])

    def key(self, key, code=0, shift=False):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, modifiers=8 if shift else 0, **text)

    def middle(self, selector):
        """Where the middle of an element is, after it was scrolled into sight."""
        return self.js(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: "center"}}); const b = e.getBoundingClientRect();
            return [b.x + b.width / 2, b.y + b.height / 2]; }})()""")

    def mouse(self, kind, x, y):
        pressed = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def drag(self, begin, end):
        self.mouse("mouseMoved", *begin)
        self.mouse("mousePressed", *begin)
        for part in (0.5, 1):
            place = [a + (b - a) * part for a, b in zip(begin, end)]
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1], button="left", buttons=1)
        self.mouse("mouseReleased", *end)

    def click(self, selector):
        x, y = self.middle(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def tap(self, selector):
        x, y = self.middle(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def touch(self, places):
        """A finger that is drawn over some places."""
        for kind, (x, y) in zip(["touchStart", *["touchMove"] * len(places)], places):
            self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def picture(self, file, whole=True):
        size = {}
        if whole:
            height = self.js("Math.ceil(document.documentElement.scrollHeight)")
            width = self.js("innerWidth")
            size = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        pathlib.Path(file).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **size)["data"]))

    def requests(self):
        """Addresses that were asked for, other than the page itself."""
        urls = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith("file:")]

    def complaints(self):
        """Errors and warnings in the console, and exceptions."""
        said = []
        for event in self.events:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                said.append(details.get("exception", {}).get("description") or details["text"])
            elif event["method"] == "Runtime.consoleAPICalled":
                said.append(str([argument.get("value") for argument in parameters["args"]]))
            elif event["method"] == "Log.entryAdded":
                said.append(parameters["entry"]["text"])
        return said
