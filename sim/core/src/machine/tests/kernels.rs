//! The one kernel: what it reaches, what it loses, what it breaks.

use super::*;
use crate::fault::Faults;
use crate::kernel::{LL_KERNELS, LL128_KERNELS};

/// Two devices with memory, the first of which reaches the second's, and a kernel on the first.
struct Kernels {
    rig: Rig,
    function: FunctionHandle,
    own: u64,
    peers: u64,
}

impl Kernels {
    fn new(faults: &str) -> Kernels {
        let rig = Rig::with(Config { faults: Faults::parse(faults).0, ..Config::default() });
        let (own, peers) = (rig.memory(0, 1), rig.memory(1, 2));
        let module = rig.on(0).load_module(vec![COPY_KERNEL.to_owned(), "other".to_owned()]).unwrap();
        let function = rig.machine.module_function(module, COPY_KERNEL).unwrap();
        Kernels { rig, function, own, peers }
    }

    fn connected(faults: &str) -> Kernels {
        let kernels = Kernels::new(faults);
        kernels.rig.machine.enable_peer(kernels.rig.contexts[1], 0).unwrap();
        kernels
    }

    fn run(&self, to: u64, from: u64, words: u64) -> Result<()> {
        self.rig.machine.launch(LEGACY, self.function, [to, from, words]).unwrap();
        self.rig.machine.synchronize_stream(LEGACY)
    }
}

#[test]
fn launch_copies_words_from_and_to_a_peer() {
    let kernels = Kernels::connected("");
    assert_eq!(kernels.run(kernels.own, kernels.peers, 1), Ok(()));
    assert_eq!((first_byte(kernels.own + 7), first_byte(kernels.own + 8)), (2, 1));
    assert_eq!(kernels.run(kernels.peers, kernels.own + 8, SIZE as u64 / 8 - 1), Ok(()));
    assert_eq!(first_byte(kernels.peers), 1);
}

#[test]
fn launch_lost_loads_and_stores_are_lost_one_way_and_copies_are_right() {
    let kernels = Kernels::connected("lost:0>1");
    let Kernels { own, peers, .. } = kernels;
    assert_eq!(kernels.run(peers, own, 8), Ok(()));
    assert_eq!(first_byte(peers), 2);
    assert_eq!(kernels.run(own, peers, 1), Ok(()));
    assert_eq!((first_byte(own), first_byte(own + 8)), (0xff, 1));
    kernels.rig.peer_copy(own, peers).unwrap();
    kernels.rig.machine.synchronize_stream(LEGACY).unwrap();
    assert_eq!(first_byte(own), 2);
}

#[test]
fn window_loses_what_copies_and_kernels_do_beyond_it_one_way() {
    let kernels = Kernels::connected("window:0>1");
    let Kernels { own, peers, ref rig, .. } = kernels;
    let [below, beyond] = [3 << 30, SIZE as u64].map(|size| rig.on(1).allocate(Kind::Device, size, 0).unwrap());
    rig.on(0);
    for (there, arrives) in [(peers, true), (below, true), (beyond, false)] {
        for by_kernel in [false, true] {
            write(there, &[2; SIZE]);
            write(own, &[1; SIZE]);
            let (to, from) = (there, own);
            if by_kernel {
                kernels.run(to, from, 1).unwrap()
            } else {
                rig.peer_copy(to, from).unwrap()
            }
            rig.machine.synchronize_stream(LEGACY).unwrap();
            assert_eq!(first_byte(there), if arrives { 1 } else { 2 }, "{by_kernel} {there:#x}");
        }
        assert_eq!(kernels.run(own, there, 1), Ok(()));
        assert_eq!(first_byte(own), if arrives { 1 } else { 0xff });
        rig.peer_copy(own, there).unwrap();
        rig.machine.synchronize_stream(LEGACY).unwrap();
        assert_eq!(first_byte(own), first_byte(there), "the other direction is right");
    }
}

#[test]
fn launch_additions_reach_a_peer_each_once_and_say_what_they_found() {
    for (fault, sums, found) in [
        ("", [1 + 1025, 2 + 1026, 3], [0, 1, 0]),
        ("atomics:0>1", [0; 3], [u64::MAX; 3]),
        ("lost:0>1", [0; 3], [u64::MAX; 3]),
    ] {
        let kernels = Kernels::connected(fault);
        let Kernels { own, peers, ref rig, .. } = kernels;
        write(peers, &[0; 8192]);
        let module = rig.machine.load_module(vec![ADD_KERNEL.to_owned()]).unwrap();
        let function = rig.machine.module_function(module, ADD_KERNEL).unwrap();
        assert_eq!(rig.machine.module_function(module, ADD_KERNEL), Ok(function));
        rig.machine.launch(LEGACY, function, [peers, own, 1026]).unwrap();
        rig.machine.synchronize_stream(LEGACY).unwrap();
        let word = |address: u64, index: u64| {
            let mut word = 0u64;
            os::copy(&raw mut word as u64, address + 8 * index, 8);
            word
        };
        assert_eq!([0, 1, 2].map(|index| word(peers, index)), sums, "{fault}");
        assert_eq!([0, 1024, 2].map(|index| word(own, index)), found, "{fault}");
        // Copies by kernels are right, unless they are lost too.
        assert_eq!(kernels.run(own, peers, 1), Ok(()));
        assert_eq!(word(own, 0) == u64::MAX, fault == "lost:0>1");
    }
}

#[test]
fn kernels_that_exchange_flags_see_the_data_unless_it_arrives_later_or_is_lost() {
    for (fault, received, wrong) in [("", [5, 5], false), ("order:0>1", [5, 5], true), ("lost:0>1", [0, 0], false)] {
        let kernels = Kernels::connected(fault);
        let Kernels { own, peers, ref rig, .. } = kernels;
        write(peers, &[0; 8192]);
        write(own, &[0; 8]);
        let function = |device: usize, name: &str| {
            let module = rig.on(device).load_module(vec![name.to_owned()]).unwrap();
            rig.on(device).module_function(module, name).unwrap()
        };
        let (send, receive) = (function(0, SEND_KERNEL), function(1, RECEIVE_KERNEL));
        rig.on(1).launch(LEGACY, receive, [peers, peers + 4096, 5]).unwrap();
        rig.on(0).launch(LEGACY, send, [peers, own, 5]).unwrap();
        rig.on(0).synchronize_stream(LEGACY).unwrap();
        rig.on(1).synchronize_stream(LEGACY).unwrap();
        assert_eq!([own, peers + 4096].map(os::load), received, "{fault}");
        assert_eq!([1, 2].map(|word| os::load(peers + 4096 + 8 * word) > 0), [wrong; 2], "{fault}");
    }
}

#[test]
fn kernels_that_pull_find_what_is_stored_unless_it_is_kept_or_lost() {
    for (fault, received, first) in [("", 5, 0), ("pull:0>1", 5, 2), ("lost:0>1", 5, 1)] {
        let kernels = Kernels::connected(fault);
        let Kernels { own, peers, ref rig, .. } = kernels;
        write(peers, &[0; 8192]);
        let [receive, send] =
            [(0, "p2pshim_probe_receive_acquire"), (1, "p2pshim_probe_send_acquire")].map(|(on, name)| {
                let module = rig.on(on).load_module(vec![name.to_owned()]).unwrap();
                rig.on(on).module_function(module, name).unwrap()
            });
        rig.on(1).launch(LEGACY, send, [peers, peers + 4096, 5]).unwrap();
        rig.on(0).launch(LEGACY, receive, [peers, own, 5]).unwrap();
        [0, 1].into_iter().for_each(|device| rig.on(device).synchronize_stream(LEGACY).unwrap());
        assert_eq!([0, 2].map(|word| os::load(own + 8 * word)), [received, first], "{fault}");
        assert_eq!(
            os::load(peers + 4096),
            if fault == "lost:0>1" { 0 } else { 5 },
            "{fault}: rounds that were answered"
        );
    }
}

#[test]
fn kernels_with_flags_in_line_see_whole_lines_unless_they_are_torn_or_lost() {
    for (kind, names) in [("ll", LL_KERNELS), ("ll128", LL128_KERNELS)] {
        for (fault, received, wrong) in [("", 5, false), (kind, 5, true), ("lost", 0, false)] {
            let kernels = Kernels::connected(&format!("{fault}:0>1"));
            let Kernels { ref rig, .. } = kernels;
            let [own, peers] = [0, 1].map(|device| rig.on(device).allocate(Kind::Device, 1 << 16, 0).unwrap());
            write(peers, &[0; 1 << 16]);
            write(own, &[0; 8]);
            let [send, receive] = [0, 1].map(|on| {
                let module = rig.on(on).load_module(vec![names[on].to_owned()]).unwrap();
                rig.on(on).module_function(module, names[on]).unwrap()
            });
            rig.on(1).launch(LEGACY, receive, [peers, peers + 32768, 5]).unwrap();
            rig.on(0).launch(LEGACY, send, [peers, own, 5]).unwrap();
            [0, 1].into_iter().for_each(|device| rig.on(device).synchronize_stream(LEGACY).unwrap());
            assert_eq!([own, peers + 32768].map(os::load), [received; 2], "{kind} {fault}");
            assert_eq!([1, 2].map(|word| os::load(peers + 32768 + 8 * word) > 0), [wrong; 2], "{kind} {fault}");
        }
    }
}

#[test]
fn launch_unreachable_memory_breaks_its_context_alone() {
    let mut on_host = [0u64; 2];
    for reach in 0..3 {
        let kernels = Kernels::new("");
        let Kernels { own, peers, .. } = kernels;
        let (to, words) = [(peers, 1), (on_host.as_mut_ptr() as u64, 1), (own, SIZE as u64)][reach];
        assert_eq!(kernels.run(to, own, words), Err(Error::ILLEGAL_ADDRESS));
        assert_eq!(first_byte(peers), 2);
        let refused = kernels.rig.machine.allocate(Kind::Device, 8, 0);
        assert_eq!(refused, Err(Error::ILLEGAL_ADDRESS));
        assert!(kernels.rig.on(1).allocate(Kind::Device, 8, 0).is_ok());
        kernels.rig.machine.reset_primary(0).unwrap();
    }
    assert_eq!(on_host, [0; 2]);
}

#[test]
fn launch_after_the_module_or_on_another_context_is_refused() {
    let kernels = Kernels::new("");
    let elsewhere = kernels.rig.stream(1, Role::NonBlocking);
    let launch = |stream| kernels.rig.on(0).launch(stream, kernels.function, [kernels.own, kernels.own, 1]);
    assert_eq!(launch(elsewhere), Err(Error::INVALID_HANDLE));
    kernels.rig.machine.reset_primary(0).unwrap();
    kernels.rig.machine.retain_primary(0).unwrap();
    assert_eq!(launch(LEGACY), Err(Error::INVALID_HANDLE));
}

#[test]
fn module_function_only_the_copying_kernel_runs() {
    let rig = Rig::new(1);
    let module = rig.on(0).load_module(vec!["other".to_owned()]).unwrap();
    assert_eq!(rig.machine.module_function(module, "other"), Err(Error::NO_BINARY_FOR_GPU));
    assert_eq!(rig.machine.module_function(module, COPY_KERNEL), Err(Error::NOT_FOUND));
    assert_eq!(rig.machine.unload_module(module), Ok(()));
    assert_eq!(rig.machine.unload_module(module), Err(Error::INVALID_HANDLE));
}

#[test]
fn load_module_waits_for_what_runs() {
    let rig = Rig::new(2);
    let stream = rig.stream(0, Role::NonBlocking);
    let gate = rig.block(stream);
    let (machine, context) = (&rig.machine, rig.contexts[0]);
    thread::scope(|scope| {
        let loading = scope.spawn(move || {
            current::set(Some(context));
            machine.load_module(Vec::new())
        });
        settle();
        assert!(!loading.is_finished());
        gate.signal();
        assert!(loading.join().unwrap().is_ok());
    });
}

#[test]
fn captured_launch_runs_when_the_graph_does() {
    let kernels = Kernels::connected("");
    let stream = kernels.rig.stream(0, Role::NonBlocking);
    let machine = &kernels.rig.machine;
    machine.begin_capture(stream, crate::CaptureMode::Relaxed, None).unwrap();
    machine.launch(stream, kernels.function, [kernels.own, kernels.peers, 1]).unwrap();
    let graph = machine.end_capture(stream).unwrap();
    assert_eq!(first_byte(kernels.own), 1);
    let exec = machine.instantiate_graph(graph).unwrap();
    machine.launch_graph(exec, stream).unwrap();
    machine.synchronize_stream(stream).unwrap();
    assert_eq!(first_byte(kernels.own), 2);
}
