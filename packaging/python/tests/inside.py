"""What a program under p2pshim is told, on two simulated GPUs with libcudart.so.12. test_p2pshim.py runs it."""

import ctypes
import os
import pathlib
import tempfile
import unittest

import p2pshim

MIB = 1 << 20


class Cuda:
    """As much of the runtime as is needed."""

    def __init__(self):
        self.runtime = ctypes.CDLL("libcudart.so.12")

    def call(self, name, *arguments):
        code = getattr(self.runtime, name)(*arguments)
        assert code == 0, (name, code)

    def allocate(self, device, size=MIB):
        memory = ctypes.c_void_p()
        self.call("cudaSetDevice", device)
        self.call("cudaMalloc", ctypes.byref(memory), ctypes.c_size_t(size))
        return memory.value

    def copy_peer(self, to, from_, size):
        self.call("cudaMemcpyPeer", ctypes.c_void_p(to), 1, ctypes.c_void_p(from_), 0, ctypes.c_size_t(size))


class Inside(unittest.TestCase):
    """In the order of the names: what cannot be changed any more is changed first."""

    @classmethod
    def setUpClass(cls):
        cls.cuda = Cuda()

    def test_1_before_the_first_call_options_can_be_set(self):
        self.assertTrue(p2pshim.is_active())
        self.assertEqual(p2pshim.state().activity, p2pshim.Activity.NOT_STARTED)
        self.assertEqual(p2pshim.option("access"), "auto")
        p2pshim.set_option("access", "app")
        self.assertEqual((p2pshim.option("access"), p2pshim.option("P2PSHIM_ACCESS")), ("app", "app"))
        p2pshim.set_option("P2PSHIM_ACCESS", "auto")
        p2pshim.set_option("summary", False)
        self.assertEqual(p2pshim.option("summary"), "off")
        long = "/" + "x" * 1000
        p2pshim.set_option("log_file", long)
        self.assertEqual(p2pshim.option("log_file"), long)
        p2pshim.set_option("log_file", "")

    def test_2_wrong_options_say_what_is_wrong(self):
        for name, value, expected in (
            ("colour", "red", "P2PSHIM_UNKNOWN_NAME"),
            ("access", "perhaps", "P2PSHIM_INVALID_VALUE"),
        ):
            with self.assertRaises(p2pshim.Error) as raised:
                p2pshim.set_option(name, value)
            self.assertEqual(raised.exception.name, expected)
            self.assertIn(f"P2PSHIM_{name.upper()}={value}", str(raised.exception))
        with self.assertRaises(p2pshim.Error):
            p2pshim.option("colour")

    def test_3_copies_are_counted_and_the_pair_is_verified(self):
        source = self.cuda.allocate(0)
        with self.assertRaises(p2pshim.Error) as raised:
            p2pshim.prepare_pair(0, 1)
        self.assertEqual(raised.exception.name, "P2PSHIM_NOT_READY")
        destination = self.cuda.allocate(1)
        p2pshim.set_option("access", "app")
        self.assertFalse(p2pshim.prepare_pair(0, 1))
        p2pshim.set_option("access", "auto")
        for _ in range(3):
            self.cuda.copy_peer(destination, source, MIB)
        pair = p2pshim.pair(0, 1)
        self.assertEqual((pair.direct_copies + pair.staged_copies, pair.direct_bytes + pair.staged_bytes), (3, 3 * MIB))
        self.assertGreater(pair.direct_copies, 0)
        self.assertEqual(p2pshim.pairs(), {(0, 1): pair})
        state = p2pshim.state()
        self.assertEqual((state.activity, state.driver_version, state.device_count), (p2pshim.Activity.ON, 13000, 2))
        self.assertEqual((state.recording, state.failures), (False, 0))
        copies = next(api for api in p2pshim.apis() if api.name == "cudaMemcpyPeer" and api.layer == p2pshim.Layer.RUNTIME)
        self.assertEqual((copies.calls, copies.failures), (3, 0))

        known = p2pshim.pair_state(0, 1)
        self.assertEqual((known.possible, known.denied, known.path), (1, False, p2pshim.Path.DIRECT))
        self.assertEqual((known.enabled_by, known.verification), (p2pshim.By.SHIM, p2pshim.Verification.PASSED))
        with self.assertRaises(IndexError):
            p2pshim.pair_state(0, 64)

    def test_4_libraries_are_those_that_are_loaded(self):
        libraries = {os.path.basename(library.path): library for library in p2pshim.libraries()}
        self.assertEqual(set(libraries), {"libcudart.so.12", "libcuda.so.1"})
        runtime = libraries["libcudart.so.12"]
        self.assertEqual((runtime.layer, runtime.bypass), (p2pshim.Layer.RUNTIME, ""))
        self.assertIn(p2pshim.Route.LOOKED_UP, runtime.routes)

    def test_5_findings_are_told(self):
        self.assertIsNone(p2pshim.last_finding())
        self.cuda.runtime.cudaDeviceEnablePeerAccess(1, 1)
        finding, text = p2pshim.last_finding()
        self.assertEqual((finding.rule, finding.number), ("P2P-enable-flags-nonzero", 1))
        self.assertEqual(finding.function, "cudaDeviceEnablePeerAccess")
        self.assertIn("P2P-enable-flags-nonzero", text)
        rule = next(rule for rule in p2pshim.rules() if rule.id == finding.rule)
        self.assertEqual(rule.times, 1)

    def test_6_pair_is_prepared(self):
        self.assertTrue(p2pshim.prepare_pair(0, 1))
        for devices in (0, 0), (0, 2), (-1, 0):
            with self.assertRaises(IndexError):
                p2pshim.prepare_pair(*devices)

    def test_7_trace_is_started_marked_and_stopped(self):
        self.assertIsNone(p2pshim.trace())
        with self.assertRaises(p2pshim.Error):
            p2pshim.mark("too early")
        with self.assertRaises(p2pshim.Error):
            p2pshim.start_trace()
        with tempfile.TemporaryDirectory() as folder:
            p2pshim.start_trace(folder)
            p2pshim.mark("epoch 3 begins")
            trace = p2pshim.trace()
            self.assertTrue(trace.recording)
            self.assertEqual((os.path.dirname(trace.path), trace.dropped), (folder, 0))
            p2pshim.stop_trace()
            self.assertFalse(p2pshim.trace().recording)
            self.assertIn(b"epoch 3 begins", pathlib.Path(trace.path).read_bytes())


if __name__ == "__main__":
    unittest.main()
