"""The verdict, without the library: the module as it lies in packaging/python is enough.

    PYTHONPATH=packaging/python python3 packaging/python/tests/test_verdict.py
"""

import json
import os
import pathlib
import re
import tempfile
import unittest
from unittest import mock

import p2pshim
from p2pshim import _verdict


class Verdicts(unittest.TestCase):
    """Verdicts in files, of which those that others could have written, or that are outdated, are not believed."""

    BOOT = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    GPUS = [f"GPU-8932f937-d72c-4106-c12f-20bd9faed9f{number}" for number in range(8)]
    WRONG = {"result": "wrong", "detail": "8 of 8 bytes never arrived"}
    RIGHT = {"result": "right", "detail": None}

    def setUp(self):
        base = tempfile.TemporaryDirectory()
        self.addCleanup(base.cleanup)
        self.folder = os.path.join(base.name, "p2pshim")
        os.mkdir(self.folder, 0o700)
        self.name = os.path.join(self.folder, f"verdict-{self.BOOT}.json")

    def write(self, folder=None, parts=None, **others):
        """A file of eight GPUs, of which the first cannot use the flags of the second."""
        module = pathlib.Path("/sys/module/nvidia/version")
        gpus = [{"uuid": gpu, "bus_id": f"ffff:{number:02x}:00.0", "bar1": None, "iommu": None} for number, gpu in enumerate(self.GPUS)]
        pairs = [
            {"from": one, "to": other, "cuda_version": 13000, "simulated": None, "parts": {"copies": self.RIGHT, "flags": self.RIGHT}}
            for one in self.GPUS for other in self.GPUS if one != other
        ]  # fmt: skip
        pairs[0]["parts"] = parts or {"copies": self.RIGHT, "flags": self.WRONG}
        told = {
            "version": 1, "p2pshim": "0.1.0", "host": "a", "boot": self.BOOT, "time": 1, "gpus": gpus, "pairs": pairs,
            "kernel_module": module.read_text().strip() if module.exists() else None, **others,
        }  # fmt: skip
        path = os.path.join(folder or self.folder, os.path.basename(self.name))
        with open(path, "w") as file:
            json.dump(told, file)
        os.chmod(path, 0o644)

    def read(self):
        return _verdict.read([self.folder])

    def test_parts_that_a_program_relies_on_decide(self):
        self.assertEqual((bool(self.read()), self.read().veto()), (False, None))
        self.write()
        verdict, gpus = self.read(), self.GPUS
        self.assertEqual((bool(verdict), len(verdict.pairs)), (True, 56))
        said = f"flags from {gpus[0]} to {gpus[1]}: 8 of 8 bytes never arrived (p2pshim doctor)"
        for parts in (), ("flags",), ("copies", "flags"):
            self.assertEqual(verdict.veto(*parts), said)
            self.assertEqual(verdict.veto(*parts, gpus=[gpus[1].upper(), gpus[0][4:]]), said)
        self.assertIsNone(verdict.veto("copies", "ipc"))
        self.assertIsNone(verdict.veto(gpus=gpus[1:]))
        self.write(parts={"all-memory": self.WRONG})
        self.assertIn("all-memory", self.read().veto("copies"))
        self.write(parts={"flags": {"result": "hung", "detail": None}, "a-new-part": self.RIGHT})
        self.assertIn("hung", self.read().veto("flags"))

    def test_parts_are_those_of_the_library_and_others_are_refused(self):
        source = pathlib.Path(__file__).parents[3] / "host/src/verdict.rs"
        words = re.search(r"fn word\(.*?\n    }\n", source.read_text(), re.DOTALL).group()
        self.assertEqual(_verdict.PARTS, tuple(re.findall(r'=> "([a-z0-9-]+)"', words)))
        # Also where no verdict is known.
        with self.assertRaisesRegex(ValueError, "'copys'.* copies, pools"):
            self.read().veto("loads", "copys")
        self.write(parts={"a-new-part": self.WRONG})
        self.assertIn("a-new-part", self.read().veto())

    def test_a_failure_in_any_place_stays(self):
        other = self.folder + "2"
        os.mkdir(other)
        self.write()
        self.write(other, parts={"copies": self.RIGHT, "flags": self.RIGHT, "loads": self.RIGHT})
        for places in [self.folder, other], [other, self.folder]:
            verdict = _verdict.read(places)
            self.assertIsNotNone(verdict.veto("flags"))
            self.assertIn("loads", verdict.pairs[self.GPUS[0], self.GPUS[1]])

    def test_what_is_outdated_is_not_believed(self):
        gpu = {"uuid": self.GPUS[0], "bus_id": "ffff:00:00.0", "bar1": "0x1000", "iommu": None}
        for others in {"boot": "another"}, {"version": 2}, {"kernel_module": "1.2"}, {"gpus": [gpu]}, {"gpus": []}, {"pairs": [1]}:
            self.write(**others)
            self.assertFalse(self.read(), others)
        self.write()
        os.rename(self.name, os.path.join(self.folder, "verdict-another.json"))
        self.assertFalse(self.read())
        simulated = {"from": self.GPUS[0], "to": self.GPUS[1], "simulated": "drop:0-1;", "parts": {"copies": self.WRONG}}
        self.write(pairs=[simulated])
        with mock.patch.dict(os.environ, {"P2PSIM_FAULT": "drop:0-1"}):
            self.assertIsNotNone(self.read().veto())
        self.assertFalse(self.read(), "other faults")
        for text in "", "{", "[]", "null", '{"version": 1}':
            pathlib.Path(self.name).write_text(text)
            self.assertFalse(self.read(), text)

    def test_what_others_could_have_written_is_not_believed(self):
        self.write()
        for path, mode in (self.name, 0o666), (self.name, 0o664), (self.folder, 0o777), (self.folder, 0o770):
            before = os.stat(path).st_mode
            os.chmod(path, mode)
            self.assertFalse(self.read(), (path, oct(mode)))
            os.chmod(path, before & 0o7777)
        if os.geteuid() == 0:
            for path in self.name, self.folder:
                os.chown(path, 12345, 0)
                self.assertFalse(self.read(), path)
                os.chown(path, 0, 0)
        else:
            with mock.patch("os.geteuid", return_value=os.geteuid() + 1):
                self.assertFalse(self.read())
        self.assertTrue(self.read())
        os.rename(self.name, self.name + "2")
        os.symlink(self.name + "2", self.name)
        self.assertFalse(self.read(), "a link")
        os.remove(self.name)
        os.mkfifo(self.name)
        self.assertFalse(self.read(), "a pipe")
        os.rename(self.folder, self.folder + "2")
        os.symlink(self.folder + "2", self.folder)
        self.assertFalse(self.read(), "a link to the folder")

    def test_it_costs_few_files_and_not_the_library(self):
        self.write()
        os.makedirs(os.path.join(self.folder, "p2pshim"), 0o700)
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": os.path.dirname(self.folder)}):
            with mock.patch("p2pshim._library._library", side_effect=AssertionError("the library is loaded")):
                with mock.patch("os.open", wraps=os.open) as opened, mock.patch("builtins.open", wraps=open) as also:
                    self.assertTrue(p2pshim.verdict())
        # Two folders with a file each; the boot, the kernel module, and two for each GPU.
        self.assertLessEqual(opened.call_count, 4)
        self.assertLessEqual(also.call_count, 1 + 2 + 2 * len(self.GPUS))


if __name__ == "__main__":
    unittest.main()
