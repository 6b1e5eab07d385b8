//! `make install` into an empty prefix, programs from outside the tree that use what it has installed, and `make uninstall`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::once::made_once;
use crate::support::outside::{cmake, ctest, files, outside, pkg_config, pytest, run, text, told};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `make` as a user calls it, without what the `make` that runs the tests has put into the environment.
fn make(arguments: &[&str]) -> Output {
    let mut command = Command::new("make");
    command.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments);
    for inherited in [
        "MAKEFLAGS",
        "MFLAGS",
        "MAKELEVEL",
        "MAKEOVERRIDES",
        "PREFIX",
        "LIBDIR",
        "PYTHONDIR",
        "DESTDIR",
        "SHIM_PROFILE",
    ] {
        command.env_remove(inherited);
    }
    run(&mut command)
}

fn installed(arguments: &[&str]) {
    // The library under test, instead of the one that users build.
    let output = make(&[&["install", "CARGO=no-cargo", "INSTALLED=target/built"], arguments].concat());
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// An installed tree, which is there for all tests and as it was.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| made_once("prefix", |prefix| installed(&[&format!("PREFIX={}", prefix.display())])))
}

fn from_pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut command = pkg_config();
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(arguments).arg("p2pshim");
    told(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// A program that is run without a preload, on the simulated GPUs that were installed.
fn on_simulated_gpus(program: &Path) -> Command {
    let mut command = Command::new(program);
    let library_path = format!("{0}/lib:{0}/lib/p2pshim/sim", prefix().display());
    command.env_clear().env("LD_LIBRARY_PATH", library_path);
    command
}

/// The line that the programs of tests/install/ print if their copy was seen.
fn seen() -> String {
    format!("p2pshim {VERSION} saw 1 copies of 4096 bytes\n")
}

/// The symbols that a program refers to, with versions: `cudaMemcpyPeer@libcudart.so.12 (2)`.
fn references(program: &Path) -> Vec<String> {
    let symbols = told(Command::new("readelf").args(["--dyn-syms", "-W"]).arg(program));
    let undefined = symbols.lines().filter(|line| line.contains(" UND "));
    undefined.filter_map(|line| Some(line.split(" UND ").nth(1)?.trim().to_owned())).collect()
}

/// A program that is linked with the shim before the runtime refers to what it would without, and to the C interface.
fn assert_only_the_interface_is_ours(program: &Path) {
    let references = references(program);
    let of = |start: &str| references.iter().filter(|name| name.starts_with(start)).collect::<Vec<_>>();
    let copies = of("cudaMemcpyPeer@");
    assert!(copies.len() == 1 && copies[0].contains("@libcudart.so.12"), "{references:#?}");
    assert!(!references.iter().any(|name| name.contains("P2PSHIM")), "{references:#?}");
    assert_eq!(of("p2pshim_pair_get").len(), 1, "{references:#?}");
}

fn compiled(compiler: &str, source: &str, libraries: &[String], to: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(crate::support::path("target/nvidia/cu12/include"));
    command.args(from_pkg_config(&["--cflags"])).arg(crate::support::path(source)).args(libraries);
    told(command.arg(crate::support::path("target/sim/lib/libcudart.so.12")).arg("-o").arg(to));
}

fn intercepted_by_pkg_config(compiler: &str, source: &str) {
    let folder = outside(source.rsplit('/').next().unwrap());
    let program = folder.join("app");
    compiled(compiler, source, &from_pkg_config(&["--libs"]), &program);
    assert_only_the_interface_is_ours(&program);
    let output = run(&mut on_simulated_gpus(&program));
    assert_eq!((text(&output.stdout), text(&output.stderr)), (seen(), String::new()));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn pkg_config_c_program_is_intercepted_and_records_the_interface_only() {
    intercepted_by_pkg_config("cc", "tests/install/app.c");
}

#[test]
fn pkg_config_cpp_program_is_intercepted_and_records_the_interface_only() {
    intercepted_by_pkg_config("c++", "tests/install/app.cpp");
}

#[test]
fn pkg_config_tells_version_and_what_to_preload() {
    assert_eq!(from_pkg_config(&["--modversion"]), [VERSION]);
    let preload = from_pkg_config(&["--variable=preload"]).concat();
    assert_eq!(fs::canonicalize(preload).unwrap(), prefix().join(format!("lib/libp2pshim.so.{VERSION}")));
}

/// Why linkers get a library of their own: the test above can fail.
#[test]
fn real_library_linked_with_records_cudas_functions_as_ours() {
    let folder = outside("real");
    let program = folder.join("app");
    let library = prefix().join("lib/libp2pshim.so.0").display().to_string();
    compiled("cc", "tests/install/app.c", &[library], &program);
    let references = references(&program);
    assert!(references.iter().any(|name| name.starts_with("cudaMemcpyPeer@P2PSHIM")), "{references:#?}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn cmake_both_languages_are_intercepted_and_record_the_interface_only() {
    let folder = outside("cmake");
    let define = |name: &str, value: PathBuf| format!("-D{name}={}", value.display());
    let mut configure = cmake();
    configure.arg("-S").arg(crate::support::path("tests/install")).arg("-B").arg(&folder);
    configure.arg(define("CMAKE_PREFIX_PATH", prefix().to_owned()));
    configure.arg(define("CUDA_INCLUDE", crate::support::path("target/nvidia/cu12/include")));
    configure.arg(define("CUDART", crate::support::path("target/sim/lib/libcudart.so.12")));
    told(&mut configure);
    let found = fs::read_to_string(folder.join("found")).unwrap();
    let expected = format!("{VERSION}\n{0}/lib/libp2pshim.so.0\n{0}/bin/p2pshim\n", prefix().display());
    assert_eq!(found, expected);
    told(cmake().arg("--build").arg(&folder));
    for name in ["app_c", "app_cpp"] {
        let program = folder.join(name);
        assert_only_the_interface_is_ours(&program);
        assert_eq!(told(&mut on_simulated_gpus(&program)), seen());
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn ctest_fails_where_a_copy_is_staged_and_passes_where_none_is() {
    let folder = outside("ctest");
    for (from, name) in [("tests/install/ctest/CMakeLists.txt", "CMakeLists.txt"), ("docs/walk/app.c", "app.c")] {
        fs::copy(crate::support::path(from), folder.join(name)).unwrap();
    }
    let define = |name: &str, value: PathBuf| format!("-D{name}={}", value.display());
    let build = folder.join("build");
    let mut configure = cmake();
    configure.arg("-S").arg(&folder).arg("-B").arg(&build);
    configure.arg(define("CMAKE_PREFIX_PATH", prefix().to_owned()));
    configure.arg(define("CUDA_INCLUDE", crate::support::path("target/nvidia/cu12/include")));
    configure.arg(define("CUDART", crate::support::path("target/sim/lib/libcudart.so.12")));
    told(&mut configure);
    told(cmake().arg("--build").arg(&build));
    let output = run(ctest().arg("--output-on-failure").current_dir(&build));
    let said = text(&output.stdout);
    assert!(!output.status.success(), "{said}");
    for (test, outcome) in [("#1: direct", "Passed"), ("#2: staged", "Failed"), ("#3: allowed", "Passed")] {
        assert!(said.lines().any(|line| line.contains(test) && line.contains(outcome)), "{test} {outcome}: {said}");
    }
    assert!(said.contains("p2pshim: exit 120: --fail-on staged: 655.4 MB in 10 000 copies were staged"), "{said}");
    told(ctest().args(["-E", "staged"]).current_dir(&build));
    assert!(fs::read_to_string(build.join("direct.xml")).unwrap().contains("tests=\"5\" failures=\"0\""));
    fs::remove_dir_all(folder).unwrap();
}

/// The wheel of what is built, installed in a folder of its own.
fn wheel() -> PathBuf {
    let folder = outside("wheel");
    let (stage, packages) = (folder.join("stage"), folder.join("packages"));
    let built = ["target/built/libp2pshim.so", "target/built/p2pshim", "target/sim/lib"].map(crate::support::path);
    told(Command::new(crate::support::path("packaging/stage")).arg(&stage).args(["lib", "python"]).args(built));
    let mut make = Command::new(crate::support::path("packaging/python/make-wheel"));
    told(make.arg(&stage).arg(&folder).env("SOURCE_DATE_EPOCH", "1800000000"));
    let wheel = folder.join(format!("p2pshim-{VERSION}-py3-none-manylinux2014_x86_64.whl"));
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-index", "--no-deps", "--target"]);
    told(pip.arg(&packages).arg(wheel).env("PIP_ROOT_USER_ACTION", "ignore"));
    folder
}

#[test]
fn pytest_fails_where_a_copy_is_staged_and_passes_where_none_is() {
    let folder = wheel();
    let tests = folder.join("tests");
    fs::create_dir(&tests).unwrap();
    fs::copy(crate::support::path("tests/install/pytest/test_copies.py"), tests.join("test_copies.py")).unwrap();
    let pytest_with = |packages: &Path, arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-m", "pytest", "-v", "--color=no"]).args(arguments).current_dir(&tests);
        let path = format!("{}:{}", packages.display(), pytest().display());
        command.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTEST_ADDOPTS");
        let output = run(&mut command);
        (text(&output.stdout) + &text(&output.stderr), output.status.code())
    };
    let pytest = |arguments: &[&str]| pytest_with(&folder.join("packages"), arguments);
    let (said, status) = pytest(&["--p2pshim-sim", "2"]);
    assert_eq!(status, Some(1), "{said}");
    for (test, outcome) in [
        ("plain", "PASSED"),
        ("direct", "PASSED"),
        ("staged", "FAILED"),
        ("allowed", "PASSED"),
        ("counts[20]", "PASSED"),
        ("counts[40]", "PASSED"),
        ("wrong", "FAILED"),
        ("nothing", "FAILED"),
        ("skipped", "SKIPPED"),
        ("expected", "XFAIL"),
        ("killed", "FAILED"),
        ("staged_then_ends", "FAILED"),
        ("direct_then_ends", "PASSED"),
        ("staged_then_torn", "FAILED"),
        ("staged_then_torn", "ERROR"),
    ] {
        assert!(said.contains(&format!("test_copies.py::test_{test} {outcome}")), "{test} {outcome}: {said}");
    }
    assert!(said.contains("6 failed, 6 passed, 1 skipped, 1 xfailed, 1 error"), "{said}");
    for part in [
        "--fail-on staged: 2.6 MB in 40 copies were staged, GPU 0 > GPU 1 (access not enabled)",
        "AssertionError: by itself",
        "--fail-on staged: nothing was recorded",
        "the process of the test ended with -6",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (said, status) = pytest(&["--p2pshim-sim", "2", "-k", "direct or allowed", "test_copies.py"]);
    assert_eq!(status, Some(0), "{said}");
    fs::write(tests.join("test_mark.py"), "import pytest\n@pytest.mark.p2pshim(staged=True)\ndef test_mark(): pass\n")
        .unwrap();
    let (said, status) = pytest(&["test_mark.py"]);
    assert!(
        status != Some(0) && said.contains("the mark p2pshim takes no_staged, no_hazard, … and sim, not staged"),
        "{said}"
    );
    let source = ["-p", "p2pshim.pytest_plugin", "test_copies.py"];
    let (said, status) = pytest_with(&crate::support::path("packaging/python"), &source);
    let expected = "\nERROR: the mark p2pshim needs the wheel of p2pshim, which brings the command: bin/p2pshim was not installed with this module";
    assert!(status == Some(4) && said.contains(expected) && !said.contains("INTERNALERROR"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn cmake_version_of_another_series_is_refused() {
    let folder = outside("cmake-version");
    for (wanted, is_found) in [("0.1", true), (VERSION, true), ("0.2", false), ("0.1.99", false), ("1.0", false)] {
        let project =
            format!("cmake_minimum_required(VERSION 3.10)\nproject(a C)\nfind_package(p2pshim {wanted} QUIET)\n");
        let project = project + "message(STATUS \"found: ${p2pshim_FOUND}\")\n";
        fs::write(folder.join("CMakeLists.txt"), project).unwrap();
        let prefix = format!("-DCMAKE_PREFIX_PATH={}", prefix().display());
        let said = told(cmake().arg("-S").arg(&folder).arg("-B").arg(folder.join("build")).arg("--fresh").arg(prefix));
        assert_eq!(said.contains("found: 1"), is_found, "{wanted}: {said}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn python_module_and_command_do_what_they_should() {
    let mut command = Command::new("python3");
    command.arg(crate::support::path("packaging/python/tests/test_p2pshim.py")).current_dir("/");
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}/bin:{path}", prefix().display()));
    command.env("PYTHONPATH", prefix().join("share/p2pshim/python")).env("PYTHONDONTWRITEBYTECODE", "1");
    told(&mut command);
}

#[test]
fn command_finds_its_library_and_simulated_gpus() {
    let command = prefix().join("bin/p2pshim");
    let said = told(Command::new(&command).args(["run", "--no-report", "sh", "-c", "echo $LD_PRELOAD"]));
    assert_eq!(said.trim_end(), prefix().join("lib/libp2pshim.so.0").display().to_string());
    let said = told(Command::new(&command).args(["doctor", "--sim", "2", "0>1"]));
    assert!(said.contains("verified"), "{said}");
}

#[test]
fn library_for_linkers_preloaded_says_so_and_is_refused_by_the_command() {
    let mistaken = prefix().join("lib/libp2pshim.so");
    let output = run(Command::new("true").env("LD_PRELOAD", &mistaken));
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("Preload libp2pshim.so.0"), "{}", text(&output.stderr));
    let output = run(Command::new(prefix().join("bin/p2pshim")).args(["run", "--library"]).arg(&mistaken).arg("true"));
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("is not the shim"), "{}", text(&output.stderr));
}

#[test]
fn library_for_linkers_has_what_the_header_declares() {
    let library = prefix().join("lib/libp2pshim.so");
    let symbols = told(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let symbols: BTreeSet<String> = symbols.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(symbols, crate::support::capi_functions().into_iter().collect());
    for name in ["p2pshim.h", "p2pshim.hpp", "p2pshim_annotate.h"] {
        let header = fs::read(crate::support::path("include").join(name)).unwrap();
        assert_eq!(fs::read(prefix().join("include").join(name)).unwrap(), header);
    }
}

/// Two libraries of one folder have one soname; what `ldconfig` makes of it must be the real one.
#[test]
fn ldconfig_keeps_the_soname_for_the_real_library() {
    let folder = outside("ldconfig");
    for name in ["libp2pshim.so", &format!("libp2pshim.so.{VERSION}")] {
        fs::copy(prefix().join("lib").join(name), folder.join(name)).unwrap();
    }
    let ldconfig = ["/sbin/ldconfig", "/usr/sbin/ldconfig"].into_iter().find(|path| Path::new(path).exists()).unwrap();
    for before in ["libp2pshim.so", &format!("libp2pshim.so.{VERSION}")] {
        let link = folder.join("libp2pshim.so.0");
        let _ = fs::remove_file(&link);
        symlink(before, &link).unwrap();
        told(Command::new(ldconfig).args(["-n", "-N"]).arg(&folder));
        told(Command::new(ldconfig).arg("-n").arg(&folder));
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(&format!("libp2pshim.so.{VERSION}")));
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn pages_completions_and_licences_are_there() {
    let share = prefix().join("share");
    let page = fs::read_to_string(share.join("man/man1/p2pshim-run.1")).unwrap();
    assert!(page.contains("\n.SH SYNOPSIS\n") && page.contains("EXIT STATUS"), "{page}");
    told(Command::new("bash").arg("-n").arg(share.join("bash-completion/completions/p2pshim")));
    for (name, start) in
        [("zsh/site-functions/_p2pshim", "#compdef p2pshim"), ("fish/vendor_completions.d/p2pshim.fish", "#")]
    {
        assert!(fs::read_to_string(share.join(name)).unwrap().starts_with(start), "{name}");
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert_eq!(
            fs::read(share.join("doc/p2pshim").join(name)).unwrap(),
            fs::read(crate::support::path(name)).unwrap()
        );
    }
}

#[test]
fn uninstall_leaves_an_empty_prefix_and_what_is_others() {
    let root = outside("uninstall");
    let prefix = root.join("opt/p2pshim");
    fs::create_dir_all(prefix.join("share/man")).unwrap();
    fs::create_dir_all(prefix.join("include")).unwrap();
    fs::write(prefix.join("include/other.h"), "").unwrap();
    let before = files(&prefix);
    let arguments = ["PREFIX=/opt/p2pshim", &format!("DESTDIR={}", root.display()), "LIBDIR=/opt/p2pshim/lib64"];
    // Twice: what the first has made, the second finds.
    installed(&arguments);
    installed(&arguments);
    assert_eq!(
        told(Command::new(prefix.join("bin/p2pshim")).arg("apis")).lines().next().unwrap().split(' ').next().unwrap(),
        "cudaMemcpyPeer"
    );
    assert_eq!(
        fs::read_to_string(prefix.join("lib64/pkgconfig/p2pshim.pc")).unwrap().lines().next(),
        Some("prefix=${pcfiledir}/../..")
    );
    fs::write(prefix.join("share/p2pshim/mine"), "").unwrap();
    // An older version has installed a file that this one has not.
    let list = prefix.join("lib/p2pshim/installed");
    fs::write(prefix.join("bin/p2pshim-old"), "").unwrap();
    fs::write(&list, fs::read_to_string(&list).unwrap() + "file bin/p2pshim-old\n").unwrap();
    installed(&arguments);
    assert!(!prefix.join("bin/p2pshim-old").exists());

    let output = make(&[&["uninstall"], &arguments[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut expected = [before, vec!["share/p2pshim/mine".to_owned()]].concat();
    expected.sort();
    assert_eq!(files(&prefix), expected);
    assert!(prefix.join("share/man").is_dir() && !prefix.join("bin").exists() && !prefix.join("share/doc").exists());
    let output = make(&[&["uninstall"], &arguments[..]].concat());
    assert!(!output.status.success() && text(&output.stderr).contains("is not installed"), "{}", text(&output.stderr));
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn uninstall_empty_prefix_is_empty_afterwards() {
    let prefix = outside("empty");
    let argument = format!("PREFIX={}", prefix.display());
    installed(&[&argument]);
    assert!(files(&prefix).len() > 20);
    assert!(make(&["uninstall", &argument]).status.success());
    assert_eq!(fs::read_dir(&prefix).unwrap().count(), 0);
    fs::remove_dir(prefix).unwrap();
}

#[test]
fn install_nothing_built_and_no_rust_says_what_to_do() {
    let output = make(&["install", "PREFIX=/nonexistent", "CARGO=no-cargo", "INSTALLED=target/nothing"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("run `make build` first"), "{}", text(&output.stderr));
}

#[test]
fn install_folder_of_libraries_elsewhere_is_refused() {
    let output =
        make(&["install", "PREFIX=/nonexistent", "LIBDIR=/usr/lib", "CARGO=no-cargo", "INSTALLED=target/built"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("/usr/lib is not below PREFIX=/nonexistent"), "{}", text(&output.stderr));
}
