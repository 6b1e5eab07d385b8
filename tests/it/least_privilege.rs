//! With few rights: filters of system calls that end the process, and limits of each resource.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Scratch, command, path, shim};

/// Copies of each form and of many sizes, each verified by the program; threads that copy.
const PROGRAMS: [&str; 2] = ["four_copies_sizes-12", "multithreaded-12"];

/// System calls of the loader, the C library and simulated GPUs, in any version of them.
const PLAIN: &str = "access arch_prctl brk clone clone3 close execve exit exit_group fstat futex getrandom ioctl lseek madvise mmap \
                     mprotect munmap newfstatat openat prctl pread64 prlimit64 read rseq rt_sigaction rt_sigprocmask rt_sigreturn \
                     sched_getaffinity sched_yield set_robust_list set_tid_address write";

/// The numbers of the system calls that are named here.
macro_rules! numbers {
    ($($name:ident = $number:ident),* $(,)?) => { &[$((stringify!($name), libc::$number)),*] };
}

#[rustfmt::skip]
const NUMBERS: &[(&str, libc::c_long)] = numbers![
    access = SYS_access, arch_prctl = SYS_arch_prctl, brk = SYS_brk, clock_nanosleep = SYS_clock_nanosleep, clone = SYS_clone,
    clone3 = SYS_clone3, close = SYS_close, execve = SYS_execve, exit = SYS_exit, exit_group = SYS_exit_group,
    fallocate = SYS_fallocate, fcntl = SYS_fcntl, fstat = SYS_fstat, fstatfs = SYS_fstatfs, ftruncate = SYS_ftruncate, futex = SYS_futex,
    geteuid = SYS_geteuid, getpid = SYS_getpid, getrandom = SYS_getrandom, gettid = SYS_gettid, ioctl = SYS_ioctl,
    lseek = SYS_lseek, madvise = SYS_madvise, mkdir = SYS_mkdir, mmap = SYS_mmap, mprotect = SYS_mprotect, munmap = SYS_munmap,
    newfstatat = SYS_newfstatat, openat = SYS_openat, prctl = SYS_prctl, pread64 = SYS_pread64, prlimit64 = SYS_prlimit64,
    process_vm_readv = SYS_process_vm_readv, read = SYS_read, readlink = SYS_readlink, rseq = SYS_rseq,
    rt_sigaction = SYS_rt_sigaction, rt_sigpending = SYS_rt_sigpending, rt_sigprocmask = SYS_rt_sigprocmask,
    rt_sigreturn = SYS_rt_sigreturn, sched_getaffinity = SYS_sched_getaffinity, sched_yield = SYS_sched_yield,
    set_robust_list = SYS_set_robust_list, set_tid_address = SYS_set_tid_address, sigaltstack = SYS_sigaltstack,
    statx = SYS_statx, uname = SYS_uname, write = SYS_write,
];

fn number(name: &str) -> u32 {
    let found = NUMBERS.iter().find(|(known, _)| *known == name);
    u32::try_from(found.unwrap_or_else(|| panic!("{name} has no number here")).1).unwrap()
}

/// A program with no variables but these.
fn program(name: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(path(&format!("target/c-tests/{name}")));
    command.env_clear().env("LD_LIBRARY_PATH", path("target/sim/lib")).env("P2PSIM_DEVICES", "2");
    command.env("XDG_CACHE_HOME", "/nonexistent").envs(variables.iter().copied());
    command
}

/// Runs a program that the kernel ends as it makes any other system call.
fn filtered(command: Command, allowed: &BTreeSet<u32>) -> Output {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS};
    // The number is the first field of `seccomp_data`.
    let mut filter = vec![step(BPF_LD | BPF_W | BPF_ABS, 0, 0)];
    for &number in allowed {
        filter.extend([step(BPF_JMP | BPF_JEQ | BPF_K, 1, number), step(BPF_RET | BPF_K, 0, SECCOMP_RET_ALLOW)]);
    }
    filter.push(step(BPF_RET | BPF_K, 0, SECCOMP_RET_KILL_PROCESS));
    with_filter(command, filter)
}

fn step(code: u32, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code.try_into().unwrap(), jt: 0, jf, k }
}

fn with_filter(mut command: Command, filter: Vec<libc::sock_filter>) -> Output {
    let filter_it = move || {
        let program = libc::sock_fprog { len: filter.len().try_into().unwrap(), filter: filter.as_ptr().cast_mut() };
        // SAFETY: the filter is there; both calls take no memory but that.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: nothing is allocated between fork and exec, and the filter allows what follows.
    unsafe { command.pre_exec(filter_it) }.output().unwrap()
}

/// The system calls of a row of the table in docs/INSTALL.md, which begins so.
fn documented(row: &str) -> Vec<String> {
    let page = fs::read_to_string(path("docs/INSTALL.md")).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("| {row} | ")));
    let names = line.unwrap_or_else(|| panic!("no row {row:?}")).trim_end_matches(" |");
    names.split(", ").map(|name| name.trim_matches('`').to_owned()).collect()
}

#[test]
fn no_system_call_is_made_but_those_documented() {
    let folder = Scratch::folder("system-calls");
    let [log, traces] = ["log", "traces"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    let library = shim().to_str().unwrap().to_owned();
    let preload = ("LD_PRELOAD", library.as_str());
    for (row, variables) in [
        (None, &[("P2PSHIM", "off")][..]),
        (Some("any"), &[]),
        (Some("any"), &[("P2PSHIM_ACCESS", "off"), ("P2PSHIM_STAGING", "always")]),
        (Some("`P2PSHIM_LOG_FILE`"), &[("P2PSHIM_LOG", "trace"), ("P2PSHIM_LOG_FILE", &log)]),
        (Some("`P2PSHIM_TRACE`"), &[("P2PSHIM_TRACE", &traces)]),
    ] {
        let always = row.map(|_| documented("any")).unwrap_or_default();
        let more = row.filter(|&row| row != "any").map(documented).unwrap_or_default();
        let names = PLAIN.split(' ').chain(always.iter().chain(&more).map(String::as_str));
        let allowed: BTreeSet<u32> = names.map(number).collect();
        for name in PROGRAMS {
            let plain = program(name, &[]).output().unwrap();
            let seen = filtered(program(name, &[variables, &[preload]].concat()), &allowed);
            let all = format!("{name}, {variables:?}: {seen:?}");
            assert_eq!((seen.status, seen.stdout), (plain.status, plain.stdout), "{all}");
        }
    }
    assert!(Path::new(&log).exists() && fs::read_dir(&traces).unwrap().count() > 0, "nothing was written");
}

#[test]
fn filter_ends_programs_that_make_others() {
    let allowed = PLAIN.split(' ').filter(|name| *name != "madvise" && *name != "futex").map(number).collect();
    let seen = filtered(program("multithreaded-12", &[]), &allowed);
    assert_eq!(seen.status.signal(), Some(libc::SIGSYS), "{seen:?}");
}

/// A process that may have no thread but its first: a limit of processes may leave room for the program only.
#[test]
fn run_without_threads_fails_before_the_program_starts() {
    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
    };
    const FIRST_ARGUMENT: u32 = 16;
    let refused = |code: i32| step(BPF_RET | BPF_K, 0, SECCOMP_RET_ERRNO | code.cast_unsigned());
    let allowed = || step(BPF_RET | BPF_K, 0, SECCOMP_RET_ALLOW);
    let filter = vec![
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0),
        // Its flags are in memory. The C library makes do with `clone`.
        step(BPF_JMP | BPF_JEQ | BPF_K, 1, number("clone3")),
        refused(libc::ENOSYS),
        step(BPF_JMP | BPF_JEQ | BPF_K, 3, number("clone")),
        step(BPF_LD | BPF_W | BPF_ABS, 0, FIRST_ARGUMENT),
        step(BPF_JMP | BPF_JSET | BPF_K, 1, libc::CLONE_THREAD.cast_unsigned()),
        refused(libc::EAGAIN),
        allowed(),
    ];
    let mut run = Command::new(command());
    run.args(["run", "--no-check", "--no-report", "echo", "started"]);
    let seen = with_filter(run, filter);
    assert_eq!((seen.status.code(), &*String::from_utf8_lossy(&seen.stdout)), (Some(125), ""), "{seen:?}");
    assert!(String::from_utf8_lossy(&seen.stderr).contains("the program is not started"), "{seen:?}");
}

/// A program under a limit.
fn limited(name: &str, variables: &[(&str, &str)], resource: u32, limit: u64) -> Output {
    let set = move || {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: the limit is there.
        if unsafe { libc::setrlimit(resource, &raw const limit) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    let mut program = program(name, variables);
    // SAFETY: setrlimit(2) may be called between fork and exec.
    unsafe { program.pre_exec(set) }.output().unwrap()
}

/// The least of a resource that a program needs.
fn least(name: &str, resource: u32, most: u64, step: u64) -> u64 {
    let (mut less, mut enough) = (0, most);
    while enough - less > step {
        let middle = less + (enough - less) / 2;
        let runs = limited(name, &[], resource, middle).status.success();
        *if runs { &mut enough } else { &mut less } = middle;
    }
    enough
}

#[test]
fn program_that_just_runs_under_a_limit_runs_with_the_library() {
    const MIB: u64 = 1 << 20;
    let folder = Scratch::folder("limits");
    let library = shim().to_str().unwrap().to_owned();
    let traces = folder.join("traces").to_str().unwrap().to_owned();
    let name = PROGRAMS[0];
    let plain = program(name, &[]).output().unwrap();
    let [file_descriptors, addresses] = [(libc::RLIMIT_NOFILE, 1024, 1), (libc::RLIMIT_AS, 1 << 40, MIB)]
        .map(|(resource, most, step)| least(name, resource, most, step));
    for (resource, limit) in [
        (libc::RLIMIT_NOFILE, file_descriptors),
        // The library, threads that verify, their stacks, and a trace.
        (libc::RLIMIT_AS, addresses + 48 * MIB),
        (libc::RLIMIT_STACK, MIB / 4),
        (libc::RLIMIT_FSIZE, 0),
        (libc::RLIMIT_MEMLOCK, 0),
        (libc::RLIMIT_NPROC, 4000),
        (libc::RLIMIT_SIGPENDING, 0),
        (libc::RLIMIT_MSGQUEUE, 0),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_RTPRIO, 0),
    ] {
        for more in [&[][..], &[("P2PSHIM_TRACE", traces.as_str())], &[("P2PSHIM_ACCESS", "off")]] {
            let variables = [&[("LD_PRELOAD", library.as_str())], more].concat();
            let seen = limited(name, &variables, resource, limit);
            let all = format!("resource {resource}, {limit}, {more:?}: {seen:?}");
            assert_eq!((seen.status, seen.stdout), (plain.status, plain.stdout.clone()), "{all}");
        }
    }
    // With less the simulated driver may fail, as it does without: that is an error, and nothing worse.
    for less in 0..8 {
        let variables = [("LD_PRELOAD", library.as_str()), ("P2PSHIM_TRACE", &traces)];
        let seen = limited(name, &variables, libc::RLIMIT_AS, addresses + 3 * less * MIB);
        assert!(matches!(seen.status.code(), Some(0 | 1)), "{seen:?}");
    }
}
