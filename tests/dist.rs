//! The packages that `make dist` makes, each installed in a clean place: `make test-dist`; those of another machine, under emulation: `make test-arm-dist`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "../cli/tests/scene/mod.rs"]
mod scene;
#[path = "it/support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use support::machine::{self, compiler, program, python, python_path, with_pip};
use support::once::made_once;
use support::outside::{cmake, files, outside, pkg_config, run, text, told};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The C library that packages are linked for.
const GLIBC: [u32; 2] = [2, 17];

fn wheel() -> PathBuf {
    made(&format!("p2pshim-{VERSION}-py3-none-manylinux2014_{}.whl", machine::name()))
}

fn deb() -> PathBuf {
    made(&format!("p2pshim_{VERSION}_{}.deb", machine::in_debian()))
}

/// A file that `make dist` has made for the machine.
fn made(name: &str) -> PathBuf {
    let folder = if machine::is_emulated() { "target/dist-aarch64" } else { "target/dist" };
    support::path(&format!("{folder}/{name}"))
}

/// The folder of libraries in the Debian package.
fn libraries() -> PathBuf {
    root().join(format!("usr/lib/{}-linux-gnu", machine::name()))
}

/// A file of the package is a program or library.
fn is_elf(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}

/// The faults of an ELF file on an old machine: versions of the C library that are too new, functions that it must
/// have and no old library has, libraries that are not there everywhere.
fn too_new(path: &Path) -> Vec<String> {
    const LIBRARIES: [&str; 6] =
        ["libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
    let mut found = Vec::new();
    let symbols = told(Command::new("objdump").arg("-T").arg(path));
    for line in symbols.lines().filter(|line| line.contains("*UND*")) {
        let is_weak = line.split_whitespace().nth(1) == Some("w");
        match line.split_once("GLIBC_") {
            Some((_, rest)) => {
                let version = rest.split(')').next().unwrap().split('.').map(|part| part.parse::<u32>().unwrap());
                if version.collect::<Vec<_>>() > GLIBC.to_vec() {
                    found.push(line.to_owned());
                }
            }
            None if is_weak => {}
            None => found.push(line.to_owned()),
        }
    }
    let section = told(Command::new("readelf").arg("-dW").arg(path));
    for line in section.lines().filter(|line| line.contains("(NEEDED)")) {
        if !LIBRARIES.iter().any(|name| line.contains(&format!("[{name}]"))) {
            found.push(line.to_owned());
        }
    }
    found
}

fn assert_runs_on_old_machines(folder: &Path) {
    let elf: Vec<PathBuf> = files(folder).iter().map(|name| folder.join(name)).filter(|path| is_elf(path)).collect();
    // The library, the command, four simulated libraries.
    assert!(elf.len() >= 6, "{elf:?}");
    for path in elf {
        assert_eq!(too_new(&path), Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn wheel_all_programs_and_libraries_run_with_glibc_2_17() {
    let folder = outside("wheel-files");
    told(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel()).arg(&folder));
    assert_runs_on_old_machines(&folder);
    fs::remove_dir_all(folder).unwrap();
    // And by those who have defined what the file's name promises.
    let mut auditwheel = Command::new("python3");
    auditwheel.args(["-m", "auditwheel", "show"]).arg(wheel()).env("PYTHONPATH", support::path("target/tools/dist"));
    let said = told(&mut auditwheel);
    assert!(said.contains(&format!("\"manylinux_2_17_{}\"", machine::name())), "{said}");
}

#[test]
fn deb_all_programs_and_libraries_run_with_glibc_2_17() {
    assert_runs_on_old_machines(&root().join("usr"));
}

#[test]
fn too_new_libraries_versions_and_functions_are_found_out() {
    let folder = outside("too-new");
    let (source, library) = (folder.join("new.c"), folder.join("libnew.so"));
    fs::write(&source, "int gettid(void); int tomorrow(void); int f(void) { return gettid() + tomorrow(); }").unwrap();
    // In this machine's C library gettid has a version that is too new; nothing has the other.
    told(
        Command::new("cc")
            .args(["-shared", "-fPIC"])
            .arg(&source)
            .arg("-o")
            .arg(&library)
            .arg("-Wl,--no-as-needed,-lgcc_s"),
    );
    let found = too_new(&library);
    let wrong = |name: &str| found.iter().filter(|line| line.contains(name)).count();
    assert_eq!((wrong("gettid"), wrong("tomorrow"), wrong("[libgcc_s.so.1]"), found.len()), (1, 1, 1, 3), "{found:#?}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn calls_take_no_more_instructions_than_they_did() {
    let [programs, library] =
        ["target/bench", "target/x86_64-unknown-linux-gnu/release/libp2pshim.so"].map(support::path);
    let said = told(Command::new(support::path("benches/host-cost")).arg("--instructions").arg(programs).arg(library));
    assert!(said.lines().count() >= 13, "{said}");
}

/// An environment of Python with nothing in it but the wheel.
fn environment() -> &'static Path {
    static ENVIRONMENT: OnceLock<PathBuf> = OnceLock::new();
    let make = |folder: &Path| {
        // Without its own pip, which some systems have in a package of its own.
        told(python().args(["-m", "venv", "--without-pip"]).arg(folder));
        pip(folder, &["install", "--no-index", "--no-deps", wheel().to_str().unwrap()]);
    };
    ENVIRONMENT.get_or_init(|| made_once("venv", make))
}

fn pip(environment: &Path, arguments: &[&str]) {
    told(with_pip(&environment.join("bin/python")).arg("--disable-pip-version-check").args(arguments));
}

/// A command of the environment, as `source bin/activate` gives it, and with nothing else of ours.
fn in_environment(name: &str) -> Command {
    let bin = environment().join("bin");
    let mut command = program(&bin.join(name));
    command.env_clear().env("PATH", format!("{}:/usr/bin:/bin", bin.display())).current_dir("/");
    command
}

#[test]
fn wheel_module_and_command_do_what_they_should() {
    told(in_environment("python").arg(support::path("packaging/python/tests/test_p2pshim.py")));
}

#[test]
fn wheel_command_runs_python_programs() {
    let said = told(
        in_environment("p2pshim").args(["run", "--no-report", "--no-check", "--sim", "2", "--", "python"]).arg(app()),
    );
    assert_eq!(said, format!("p2pshim {VERSION} saw 1 copies of 4096 bytes\n"));
}

fn app() -> PathBuf {
    support::path("tests/install/app.py")
}

#[test]
fn wheel_uninstalled_leaves_nothing() {
    let folder = outside("venv");
    told(python().args(["-m", "venv", "--without-pip"]).arg(&folder));
    let before = files(&folder);
    pip(&folder, &["install", "--no-index", "--no-deps", wheel().to_str().unwrap()]);
    let pages = folder.join("share/man/man1");
    assert!(pages.join("p2pshim-run.1").exists());
    pip(&folder, &["uninstall", "--yes", "p2pshim"]);
    assert_eq!(files(&folder), before);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn wheel_made_again_is_the_same() {
    let folder = outside("wheel-again");
    let mut make = Command::new(support::path("packaging/python/make-wheel"));
    make.arg(made("stage")).arg(&folder);
    // The second date is another, to see that it is the date that counts.
    for (date, is_same) in [(date_of(&wheel()), true), ("86400000".to_owned(), false)] {
        told(make.env("SOURCE_DATE_EPOCH", date));
        let again = fs::read(folder.join(wheel().file_name().unwrap())).unwrap();
        assert!((again == fs::read(wheel()).unwrap()) == is_same, "{is_same}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// The date of a wheel's files, in seconds since 1970.
fn date_of(wheel: &Path) -> String {
    let script = "import calendar, sys, zipfile\n\
                  print(calendar.timegm(zipfile.ZipFile(sys.argv[1]).infolist()[0].date_time))";
    told(Command::new("python3").args(["-c", script]).arg(wheel)).trim().to_owned()
}

/// `dpkg` for a root folder of its own. It wants to be root, or to believe so.
fn dpkg(root: &Path, arguments: &[&str]) -> Command {
    let is_root = told(Command::new("id").arg("-u")).trim() == "0";
    let mut command = Command::new(if is_root { "env" } else { "fakeroot" });
    command.arg("dpkg").arg(format!("--root={}", root.display()));
    // The C library is not in that root.
    command.args(["--force-depends", "--force-script-chrootless"]).args(arguments);
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap()));
    command
}

fn new_root(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
    for name in ["info", "updates", "triggers"] {
        fs::create_dir_all(folder.join("var/lib/dpkg").join(name)).unwrap();
    }
    for name in ["status", "available"] {
        fs::write(folder.join("var/lib/dpkg").join(name), "").unwrap();
    }
    if machine::is_emulated() {
        told(&mut dpkg(folder, &["--add-architecture", machine::in_debian()]));
    }
}

/// A root folder in which the package is installed.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    let make = |root: &Path| {
        new_root(root);
        told(&mut dpkg(root, &["--install", deb().to_str().unwrap()]));
    };
    ROOT.get_or_init(|| made_once("root", make))
}

#[test]
fn deb_is_installed_and_removed() {
    let said = told(&mut dpkg(root(), &["--status", "p2pshim"]));
    assert!(said.contains("Status: install ok installed") && said.contains(&format!("Version: {VERSION}")), "{said}");
    // The unpacked files have the sums that the package says.
    assert_eq!(told(&mut dpkg(root(), &["--verify", "p2pshim"])), "");

    let root = outside("root");
    new_root(&root);
    told(&mut dpkg(&root, &["--install", deb().to_str().unwrap()]));
    assert!(root.join("usr/bin/p2pshim").exists());
    told(&mut dpkg(&root, &["--purge", "p2pshim"]));
    let left: Vec<_> = files(&root).into_iter().filter(|name| !name.starts_with("var/l")).collect();
    assert_eq!(left, Vec::<String>::new());
    assert!(!root.join("usr").exists());
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn deb_command_and_module_use_what_is_beside_them() {
    let usr = root().join("usr");
    let mut module = python();
    module.arg(support::path("packaging/python/tests/test_p2pshim.py")).current_dir("/").env_clear();
    module.env("PATH", format!("{}/bin:{}", usr.display(), std::env::var("PATH").unwrap()));
    module.env("PYTHONPATH", usr.join("lib/python3/dist-packages")).env("PYTHONDONTWRITEBYTECODE", "1");
    told(&mut module);
    let mut command = program(&usr.join("bin/p2pshim"));
    let script = "import os; print(os.environ['LD_PRELOAD'])";
    let said = told(command.args(["run", "--no-report"]).arg(python_path()).args(["-c", script]));
    // The library that starts emulated programs stands behind it.
    assert_eq!(said.trim_end().split(':').next().unwrap(), libraries().join("libp2pshim.so.0").display().to_string());
}

#[test]
fn deb_doctor_trusts_simulated_gpus() {
    let said = told(program(&root().join("usr/bin/p2pshim")).args(["doctor", "--sim", "2", "--timeout", "600"]));
    let is_all = !said.contains("could not be tested");
    assert!(said.starts_with("Verdict: peer access can be trusted.") && is_all, "{said}");
}

#[test]
fn deb_c_and_cpp_programs_build_with_it_and_are_intercepted() {
    let (libraries, simulated) = (libraries(), root().join("usr/lib/p2pshim/sim"));
    let mut flags = pkg_config();
    flags.args(["--cflags", "--libs", "p2pshim"]).env("PKG_CONFIG_LIBDIR", libraries.join("pkgconfig"));
    // As on a machine where it is installed, the C library's places come by themselves.
    let flags = told(flags.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1").env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1"));
    let folder = outside("deb-programs");
    for (language, source) in [("cc", "tests/install/app.c"), ("c++", "tests/install/app.cpp")] {
        let app = folder.join("app");
        let words = compiler(language);
        let mut compile = Command::new(&words[0]);
        compile.args(&words[1..]);
        compile.arg("-I").arg(support::path("target/nvidia/cu12/include")).arg(support::path(source));
        compile.args(flags.split_whitespace()).arg(simulated.join("libcudart.so.12"));
        told(compile.arg("-o").arg(&app));
        let path = format!("{}:{}", libraries.display(), simulated.display());
        let output = run(program(&app).env_clear().env("LD_LIBRARY_PATH", path));
        let expected = format!("p2pshim {VERSION} saw 1 copies of 4096 bytes\n");
        assert_eq!((text(&output.stdout), text(&output.stderr)), (expected, String::new()));
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn deb_cmake_finds_it() {
    let folder = outside("deb-cmake");
    let define = |name: &str, value: PathBuf| format!("-D{name}={}", value.display());
    let mut configure = cmake();
    configure.arg("-S").arg(support::path("tests/install")).arg("-B").arg(&folder);
    configure.arg(define("CMAKE_PREFIX_PATH", root().join("usr")));
    configure.arg(define("CUDA_INCLUDE", support::path("target/nvidia/cu12/include")));
    configure.arg(define("CUDART", root().join("usr/lib/p2pshim/sim/libcudart.so.12")));
    if machine::is_emulated() {
        // gcc for another machine says so itself.
        configure.arg(format!("-DCMAKE_LIBRARY_ARCHITECTURE={}-linux-gnu", machine::name()));
    }
    configure.env("CC", compiler("cc").join(" ")).env("CXX", compiler("c++").join(" "));
    told(&mut configure);
    told(cmake().arg("--build").arg(&folder));
    let found = fs::read_to_string(folder.join("found")).unwrap();
    for path in found.lines().skip(1) {
        assert!(path.starts_with(root().to_str().unwrap()) && Path::new(path).exists(), "{found}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn deb_has_what_debian_wants() {
    let share = root().join("usr/share");
    for name in [
        "doc/p2pshim/copyright",
        "doc/p2pshim/changelog.gz",
        "doc/p2pshim/LICENSE-MIT",
        "doc/p2pshim/THIRD-PARTY.gz",
        "man/man1/p2pshim.1.gz",
    ] {
        assert!(share.join(name).exists(), "{name}");
    }
    let owners = told(Command::new("dpkg-deb").arg("--contents").arg(deb()));
    assert!(owners.lines().all(|line| line.contains(" root/root ")), "{owners}");
    let depends = told(Command::new("dpkg-deb").arg("--field").arg(deb()).arg("Depends"));
    assert_eq!(depends, format!("libc6 (>= {}.{})\n", GLIBC[0], GLIBC[1]));
}

#[test]
fn library_has_at_most_2_and_three_quarters_mib() {
    let size = fs::metadata(made("stage/lib/libp2pshim.so.0")).unwrap().len();
    assert!(size <= 11 << 18, "{size} bytes");
}
