"""The module as it was installed, on simulated GPUs where GPUs are needed.

    python3 packaging/python/tests/test_p2pshim.py
"""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest

import p2pshim
from p2pshim import _library, _rows

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
APP = ROOT / "tests" / "install" / "app.py"


def run(*command, **kwargs):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)


class Told(unittest.TestCase):
    """What the library tells, in a process where it is not active."""

    def test_version_is_the_commands(self):
        told = run(str(p2pshim.command_path()), "--version").stdout
        self.assertEqual(told, f"p2pshim {p2pshim.version()}\n")
        self.assertRegex(p2pshim.version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(p2pshim.__version__, p2pshim.version())
        self.assertFalse(hasattr(p2pshim, "__author__"))

    def test_apis_are_those_that_the_command_lists(self):
        listed = [line.split()[:3] for line in run(str(p2pshim.command_path()), "apis").stdout.splitlines()]
        self.assertEqual([[api.name, api.layer.name.lower(), api.kind.name.lower()] for api in p2pshim.apis()], listed)
        peer = next(api for api in p2pshim.apis() if api.name == "cudaMemcpyPeer")
        self.assertEqual((peer.parameters, peer.since), ("dst, dstDevice, src, srcDevice, count", 4000))
        self.assertEqual((peer.calls, peer.failures), (0, 0))

    def test_options_are_those_that_the_command_lists(self):
        listed = re.findall(r"^(P2PSHIM\w*)=(.*)  \[default: (.*)\]$", run(str(p2pshim.command_path()), "options").stdout, re.M)
        self.assertEqual([(o.name, o.values, o.default_value or "unset") for o in p2pshim.options()], listed)
        self.assertTrue(all(option.help for option in p2pshim.options()))

    def test_rules_are_those_that_the_command_explains(self):
        listed = [line.split()[0] for line in run(str(p2pshim.command_path()), "explain").stdout.splitlines()]
        self.assertEqual([rule.id for rule in p2pshim.rules()], listed)
        twice = next(rule for rule in p2pshim.rules() if rule.id == "P2P-enable-twice")
        self.assertEqual((twice.runtime_code, twice.runtime_code_name), (704, "cudaErrorPeerAccessAlreadyEnabled"))
        self.assertEqual(twice.times, 0)
        self.assertTrue(twice.remedy)

    def test_pair_out_of_range_raises(self):
        self.assertEqual(p2pshim.pair(0, 1), p2pshim.Pair(0, 0, 0, 0))
        for devices in (-1, 0), (0, 32):
            with self.assertRaises(IndexError):
                p2pshim.pair(*devices)

    def test_not_active_where_it_was_only_imported(self):
        p2pshim.version()
        self.assertFalse(p2pshim.is_active())

    def test_threads_may_ask_at_once(self):
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(p2pshim.apis())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [p2pshim.apis()] * 8)


class Header(unittest.TestCase):
    """The module has what p2pshim.h has."""

    #: Left to C: callbacks would need Python's lock in any thread that calls CUDA. A Path has its name. verdict() reads files itself.
    LEFT_OUT = {"callback_add", "callback_remove", "path_name", "verdict_get", "verification_name"}
    ENUMS = {
        "ACTIVITY": p2pshim.Activity, "VERIFICATION": p2pshim.Verification, "LAYER": p2pshim.Layer, "PATH": p2pshim.Path,
    }  # fmt: skip
    TYPES = {
        "size_t": ctypes.c_size_t, "const char *": ctypes.c_char_p, "int": ctypes.c_int, "unsigned int": ctypes.c_uint,
        "uint64_t": ctypes.c_uint64, **dict.fromkeys((f"p2pshim_{name.lower()}_t" for name in ENUMS), ctypes.c_int),
    }  # fmt: skip

    def setUp(self):
        self.header = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "p2pshim.h").read_text(), flags=re.S)

    def test_structs_are_those_of_the_header(self):
        for row, struct in _rows.STRUCTS.items():
            name = f"p2pshim_{_rows.noun(row)}_t"
            body = re.search(rf"typedef struct \{{([^}}]*)\}} {name};", self.header).group(1)
            fields = re.findall(r"^\s*(\w[\w ]*? \*?)\s*(\w+);", body, re.M)
            expected = [(field, self.TYPES[kind.strip()]) for kind, field in fields]
            self.assertEqual(list(struct._fields_), expected, name)

    def test_functions_are_those_of_the_header(self):
        declared = set(re.findall(r"\bp2pshim_(\w+)\(", self.header))
        self.assertEqual(set(_library.FUNCTIONS) | self.LEFT_OUT, declared)

    def test_numbers_are_those_of_the_header(self):
        def numbers(prefix):
            found = re.findall(rf"\bP2PSHIM_{prefix}_(\w+)(?: =)? (\d+)", self.header)
            return {name: int(number) for name, number in found}

        for prefix, values in {**self.ENUMS, "ROUTE": p2pshim.Route, "BY": p2pshim.By}.items():
            self.assertEqual({value.name: value.value for value in values}, numbers(prefix), prefix)


class Environment(unittest.TestCase):
    """The environment of a process that is to run under it."""

    def test_library_comes_first_and_only_once(self):
        library = str(p2pshim.library_path())
        self.assertEqual(p2pshim.environment({}), {"LD_PRELOAD": library})
        other = p2pshim.environment({"LD_PRELOAD": "/other.so", "A": "b"})
        self.assertEqual(other, {"LD_PRELOAD": library + ":/other.so", "A": "b"})
        self.assertEqual(p2pshim.environment(other), other)

    def test_base_defaults_to_this_process_and_stays_as_it_was(self):
        before = dict(os.environ)
        self.assertEqual(p2pshim.environment()["PATH"], before["PATH"])
        self.assertEqual(dict(os.environ), before)

    def test_settings_become_variables(self):
        given = p2pshim.environment({}, log="info", summary=True, gpu_timing=False, enabled=False)
        expected = {"P2PSHIM_LOG": "info", "P2PSHIM_SUMMARY": "on", "P2PSHIM_GPU_TIMING": "off", "P2PSHIM": "off"}
        self.assertEqual({name: given[name] for name in expected}, expected)

    def test_settings_unknown_raise(self):
        with self.assertRaisesRegex(TypeError, "no option colour: there is no P2PSHIM_COLOUR"):
            p2pshim.environment({}, colour="red")


class Run(unittest.TestCase):
    """Programs under it."""

    SAW = f"p2pshim {p2pshim.version()} saw 1 copies of 4096 bytes\n"

    def simulated(self):
        """Where the simulated GPUs lie, which came with the command."""
        places = [p2pshim.command_path().parent / ".." / "lib", *p2pshim.library_path().parents]
        return str(next(place / "p2pshim" / "sim" for place in places if (place / "p2pshim" / "sim").is_dir()))

    def test_command_runs_python_under_it_and_reports(self):
        told = run("p2pshim", "run", "--sim", "2", "--", sys.executable, str(APP))
        self.assertEqual((told.stdout, told.returncode), (self.SAW, 0), told.stderr)
        self.assertRegex(told.stderr, r"GPU 0 > GPU 1 +1 ")

    def test_program_under_it_is_told(self):
        told = run("p2pshim", "run", "--no-report", "--sim", "2", sys.executable, str(HERE / "inside.py"))
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)

    def test_off_it_is_not_active(self):
        script = "import p2pshim; print(p2pshim.is_active())"
        for settings, expected in (({}, "True\n"), ({"enabled": False}, "False\n")):
            told = run(sys.executable, "-c", script, env=p2pshim.environment(**settings))
            self.assertEqual(told.stdout, expected, told.stderr)

    def test_module_is_the_command(self):
        words = ["-m", "p2pshim", "run", "--no-report", "--no-check", "--sim", "2", sys.executable, str(APP)]
        told = run(sys.executable, *words)
        self.assertEqual((told.stdout, told.stderr, told.returncode), (self.SAW, "", 0))

    def test_gpus_are_checked_once(self):
        words = ["run", "--no-report", "--sim", "2", sys.executable, str(APP)]
        with tempfile.TemporaryDirectory() as cache:
            env = {**os.environ, "XDG_CACHE_HOME": cache}
            first, second = (run(str(p2pshim.command_path()), *words, env=env) for _ in range(2))
        self.assertEqual((first.stdout, second.stdout), (self.SAW, self.SAW))
        # Where it takes seconds, lines before say what is being tested.
        self.assertRegex(first.stderr, r"^(p2pshim: check: .*\n)*p2pshim: checked 2 GPUs: copies right; .*\n$")
        self.assertEqual(second.stderr, "")

    def test_exit_status_passes(self):
        self.assertEqual(run("p2pshim", "run", "--no-report", sys.executable, "-c", "raise SystemExit(7)").returncode, 7)

    def test_environment_puts_it_into_a_child(self):
        told = run(sys.executable, str(APP), env=p2pshim.environment(with_libraries(self.simulated()), summary=True))
        self.assertEqual((told.stdout, told.returncode), (self.SAW, 0), told.stderr)
        self.assertIn("cudaMemcpyPeer", told.stderr)

    def test_without_it_nothing_is_seen(self):
        told = run(sys.executable, str(APP), env=with_libraries(self.simulated()))
        self.assertEqual(told.stdout, self.SAW.replace("1 copies of 4096", "0 copies of 0"), told.stderr)


def with_libraries(folder):
    return {**os.environ, "LD_LIBRARY_PATH": folder}


if __name__ == "__main__":
    unittest.main()
