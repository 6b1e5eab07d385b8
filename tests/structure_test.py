#!/usr/bin/env python3
"""Whether structure.py finds each offence, in small made-up trees, and nothing where there is none, and path_of_a_call.py counts right."""

import contextlib
import io
import subprocess
import tempfile
import unittest
from pathlib import Path

import path_of_a_call
import structure

CLEAN = {
    "Cargo.toml": '[workspace]\nmembers = ["cli", "sim/core"]\n',
    "cli/src/main.rs": "mod run;\n",
    "ARCHITECTURE.md": "# Architecture\n\nThree words here.\n",
    "src/lib.rs": "mod api;\nmod call;\nmod capi;\nmod entry;\nmod policy;\n",
    "src/entry/mod.rs": "//! crate::capi::x is a comment.\nmod hooks;\n",
    "src/entry/hooks.rs": 'use crate::call::run;\npub(in crate::capi) fn hook<\'a>(c: char) -> &\'a str { run(); "crate::capi::x {" }\n',
    "src/capi.rs": "use crate::{api::Code, call};\nmod copy;\n",
    "src/capi/copy.rs": "use super::call;\n",
    "src/call.rs": "use crate::policy::decide;\npub fn run() { decide::decide(); unsafe { x() } }\n",
    "src/policy/mod.rs": "pub(crate) mod decide;\npub(crate) mod rules;\npub(crate) use decide::decide;\npub struct Ends;\n",
    "src/policy/decide.rs": "use super::{Ends, rules::Rule};\npub fn decide() {}\n#[cfg(test)]\nmod tests {\n    use crate::entry;\n    fn f() { unsafe { x() } }\n}\n",
    "src/policy/rules.rs": "use crate::api::Code;\npub struct Rule;\n",
    "src/policy/tests.rs": "use crate::entry;\n",
    "src/api/mod.rs": "pub struct Code;\nfn quotes() { let _ = (b'\"', '{', '\\'', r#\"\"{\"#, \"\\\"{\"); /* { /* { */ */ }\n",
}


class Structure(unittest.TestCase):
    def check(self, *arguments, **files):
        """The output and exit status for the clean tree with other files in it, some of which git knows."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**CLEAN, **files.get("files", {})}.items():
                place = Path(folder, path)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
            if added := files.get("added"):
                subprocess.run(["git", "-C", folder, "init", "-q"], check=True)
                subprocess.run(["git", "-C", folder, "add", *added], check=True)
            said = io.StringIO()
            try:
                with contextlib.redirect_stdout(said):
                    structure.main([*arguments, folder])
            except SystemExit as end:
                # As Python ends a program: a text is printed, and the exit status is 1.
                is_text = isinstance(end.code, str)
                return said.getvalue() + (f"{end.code}\n" if is_text else ""), 1 if is_text else end.code or 0
            return said.getvalue(), 0

    def finds(self, expected, files):
        said, status = self.check(files=files)
        self.assertIn(expected, said)
        self.assertIn("structure: 1 offences", said)
        self.assertEqual(status, 1)
        said, status = self.check("--report", files=files)
        self.assertIn(expected, said)
        self.assertEqual(status, 0)

    def test_clean_tree_nothing_is_found(self):
        said, status = self.check()
        self.assertEqual(status, 0, said)
        self.assertNotIn("offences", said)

    def test_address_outside_of_its_place_is_found_and_a_place_without_one(self):
        named = {"packaging/contact": "Some People <some@example.org>\n", "packaging/control.in": "Maintainer: @CONTACT@\n"}
        said, status = self.check(files=named)
        self.assertEqual(status, 0, said)
        self.finds("packaging/control.in: <other@example.org> belongs into", {**named, "packaging/control.in": "By <other@example.org>\n"})
        self.finds("packaging/contact: it is one line", {**named, "packaging/contact": "\n"})

    def test_word_that_publishes_or_is_relaxed_is_in_a_table(self):
        page, code = "docs/dev/memory-order.md", CLEAN["src/api/mod.rs"] + "fn f() { self.0.store(self.0.load(Acquire), Release); slot.state.store(0, Relaxed); fence(Release); }\n"
        tables = "| `src/api/mod.rs` | `self.0`, `slot.state` | a pointer |\n\n## Relaxed\n\n| `src/api/mod.rs` | `free` | a count |\n"
        code += "fn h() { (free.load(Relaxed)..free.load(Relaxed)).contains(1) }\n"
        said, status = self.check(files={page: tables, "src/api/mod.rs": code})
        self.assertEqual(status, 0, said)
        for more, expected in (
            ("self.0.load(Relaxed)", "src/api/mod.rs:5: self.0 is Relaxed, and docs/dev/memory-order.md does not say why"),
            ("self.0.compare_exchange(a, b, Relaxed, Acquire)", "self.0 is Relaxed, and"),
            ("places.get(0)?.load(Relaxed)", "places.get(0)? is Relaxed, and"),
            ("OTHER.swap(1, AcqRel)", "OTHER publishes, and docs/dev/memory-order.md does not say what"),
        ):
            self.finds(expected, {page: tables, "src/api/mod.rs": code + f"fn g() {{ {more}; }}\n"})
        beside = {page: tables.replace("`free`", "`free`, `self.0`"), "src/api/mod.rs": code + "fn g() { self.0.load(Relaxed); }\n"}
        self.finds("src/api/mod.rs: self.0 publishes, and has (1, 0) Relaxed loads and changes, where", beside)
        self.finds("src/api/mod.rs:3: a fence, and", {"src/api/mod.rs": CLEAN["src/api/mod.rs"] + "fn g() { fence(SeqCst); }\n"})
        self.finds("docs/dev/memory-order.md: src/api/mod.rs publishes nothing by x", {page: "| `src/api/mod.rs` | `x` | y |\n"})
        self.finds("docs/dev/memory-order.md: src/api/mod.rs has nothing Relaxed by x", {page: "\n## Relaxed\n\n| `src/api/mod.rs` | `x` | y |\n"})

    def test_object_that_is_kept_outside_objects_is_found(self):
        for field in ("streams: Mutex<BTreeMap<usize, u8>>", "mapped: BTreeMap<(u64, u64), u8>", "rows: Index<3, LINK>", "last: [AtomicUsize; 4]"):
            name = field.split(":")[0]
            expected = f"src/api/mod.rs:3: {name} may keep an object of the driver outside `objects`, and KEPT_ELSEWHERE does not say why"
            self.finds(expected, {"src/api/mod.rs": CLEAN["src/api/mod.rs"] + f"struct Facts {{ {field}, n: u8 }}\n"})
            self.finds(expected, {"src/api/mod.rs": CLEAN["src/api/mod.rs"] + f"static {field.replace(': ', ': ', 1)} = x();\n"})
        said, status = self.check(files={"src/api/mod.rs": CLEAN["src/api/mod.rs"] + "struct Facts { rules: BTreeMap<Rule, u64> }\n"})
        self.assertEqual(status, 0, said)
        self.finds("src/policy/waits/entries.rs: KEPT_ELSEWHERE has pairs, which is not there", {"src/policy/waits/entries.rs": "struct Entries {\n rows: Index<6, NEXT>,\n spare: Vec<usize>,\n}\n"})

    def test_sentence_that_begins_with_what_or_who_is_found(self):
        for comment, word in (("// What is freed goes.", "What"), ("/// It goes. Who asks waits.", "Who"), ("let _ = 1; // What it is", "What")):
            expected = f"src/api/mod.rs:3: a sentence begins with {word}"
            self.finds(expected, {"src/api/mod.rs": CLEAN["src/api/mod.rs"] + comment + "\n"})
        said, status = self.check(files={"src/api/mod.rs": CLEAN["src/api/mod.rs"] + "// It says what is there, and who asks. Whatever comes, Whoever asks.\n"})
        self.assertEqual(status, 0, said)

    def test_word_that_is_defined_twice_is_found(self):
        glossary = "# Glossary\n\n| term | meaning |\n| --- | --- |\n| *pair* | two devices; a *path* joins them |\n| *chunk*, *slot* | bytes |\n"
        uses = {"docs/A.md": "*Pair* of shoes. A *chunk* goes, **slot**: x. `*pair*: x`\n", "docs/dev/GLOSSARY.md": glossary}
        uses["src/api/mod.rs"] = CLEAN["src/api/mod.rs"] + "// A *pair* is no doc comment.\n"
        said, status = self.check(files=uses)
        self.assertEqual(status, 0, said)
        self.finds("GLOSSARY.md:7: *Slot* is defined in line 6", {"docs/dev/GLOSSARY.md": glossary + "| *path*, *Slot* | x |\n"})
        for path, line in (("README.md", "A *pair* is two.\n"), ("docs/dev/B.md", "- *Chunk* of a copy: bytes\n"), ("src/api/more.rs", "//! A *slot* is one.\n")):
            self.finds(f"{path}:1: *", {"docs/dev/GLOSSARY.md": glossary, path: line})

    def test_function_of_the_c_interface_that_holds_no_signals_back_is_found(self):
        begin = 'use super::call;\n%s#[unsafe(no_mangle)]\npub extern "C" fn p2pshim_x() {\n    %s\n}\n'
        said, status = self.check(files={"src/capi/copy.rs": begin % ("", "guarded(|| {})")})
        self.assertEqual(status, 0, said)
        said, status = self.check(files={"src/capi/copy.rs": begin % ("/// any time, in signal handlers too.\n", "1")})
        self.assertEqual(status, 0, said)
        self.finds("p2pshim_x neither holds signals back nor stops a panic", {"src/capi/copy.rs": begin % ("", "1")})

    def test_module_uses_an_earlier_one_is_found(self):
        files = {"src/policy/rules.rs": "pub struct Rule;\n\nfn x() { crate::call::run() }\n"}
        self.finds("src/policy/rules.rs:3: policy may not use call (call::run)", files)

    def test_module_uses_an_earlier_one_by_super_is_found(self):
        self.finds("src/policy/rules.rs:1: policy may not use call", {"src/policy/rules.rs": "use super::super::call;\npub struct Rule;\n"})

    def test_module_uses_an_earlier_one_in_braces_is_found(self):
        files = {"src/policy/rules.rs": "use crate::{\n    api::{self, Code},\n    call::run as go,\n};\npub struct Rule;\n"}
        self.finds("policy may not use call", files)

    def test_module_entry_and_capi_use_each_other_is_found(self):
        self.finds("src/capi/copy.rs:1: capi may not use entry", {"src/capi/copy.rs": "use crate::entry::hooks;\n"})
        self.finds("src/entry/hooks.rs:1: entry may not use capi", {"src/entry/hooks.rs": "use crate::capi::copy;\n"})

    def test_module_that_nobody_knows_is_found(self):
        self.finds("module util has no place in the order", {"src/util.rs": "\n"})

    def test_files_in_a_circle_are_found(self):
        files = {"src/policy/rules.rs": "use super::decide;\npub struct Rule;\n"}
        said = "2 files use each other: src/policy/decide.rs, src/policy/rules.rs"
        self.finds(said, files)
        passed_on = {"src/policy/rules.rs": "use super::decide as d;\npub struct Rule;\n"}
        self.finds(said, passed_on)

    def test_files_in_a_circle_by_what_a_module_passes_on_are_found(self):
        files = {
            "src/policy/mod.rs": "pub(crate) mod decide;\npub(crate) mod rules;\npub(crate) use decide::choose;\n",
            "src/policy/rules.rs": "use crate::policy::choose;\npub struct Rule;\n",
        }
        self.finds("2 files use each other", files)

    def test_function_of_many_lines_is_found(self):
        function = 'pub struct Rule;\nfn long(x: [u8; 2]) -> u8\nwhere\n    X: Y,\n{\n    let s = ("}", \'}\', \'"\');\n' + "    x();\n" * 65 + "}\n"
        self.finds("src/policy/rules.rs:2: fn long has 71 lines", {"src/policy/rules.rs": function})
        shorter = function.replace("    x();\n", "", 1)
        self.assertEqual(self.check(files={"src/policy/rules.rs": shorter})[1], 0)

    def test_function_of_many_lines_in_another_crate_is_found(self):
        function = "fn long() {\n" + "    x();\n" * 69 + "}\n"
        for folder in ("cli/src", "sim/core/src/machine"):
            self.finds(f"{folder}/copies.rs:1: fn long has 71 lines", {f"{folder}/copies.rs": function})
            self.assertEqual(self.check(files={f"{folder}/tests.rs": function})[1], 0)
        self.assertEqual(self.check(files={"sim/hip/src/copies.rs": function})[1], 0, "no member")
        tests = {"cli/src/main.rs": "mod run;\n#[cfg(test)]\nmod scene;\n", "cli/src/scene.rs": function}
        self.assertEqual(self.check(files=tests)[1], 0, "a file of tests")

    def test_files_in_a_circle_in_another_crate_are_found(self):
        files = {"trace/src/lib.rs": "mod a;\nmod b;\nmod c;\n", "trace/src/a.rs": "use crate::b;\n", "trace/src/b.rs": "use crate::c::x;\n"}
        files["Cargo.toml"] = CLEAN["Cargo.toml"].replace("cli", "trace")
        self.assertEqual(self.check(files={**files, "trace/src/c.rs": "pub fn x() {}\n"})[1], 0)
        self.finds("3 files use each other: trace/src/a.rs", {**files, "trace/src/c.rs": "use super::a;\n"})

    def test_files_in_a_circle_by_a_module_that_only_passes_on_are_found(self):
        files = {"cli/src/gate/mod.rs": "mod judge;\npub struct Gate;\nfn f() { judge::judge() }\n"}
        files |= {"cli/src/gate/judge.rs": "use crate::report::tested;\npub fn judge() {}\n"}
        files |= {"cli/src/report/mod.rs": "mod traffic;\nuse crate::gate::Gate;\npub(crate) use traffic::tested;\n"}
        files |= {"cli/src/report/traffic.rs": "pub fn tested() {}\n"}
        self.finds("3 files use each other: cli/src/gate/judge.rs, cli/src/gate/mod.rs, cli/src/report/mod.rs", files)

    def test_files_in_a_circle_by_an_imported_module_are_found(self):
        files = {"cli/src/a.rs": "use crate::report;\nfn f() { report::b::g() }\n", "cli/src/report/b.rs": "use crate::a;\n"}
        self.finds("2 files use each other: cli/src/a.rs, cli/src/report/b.rs", {**files, "cli/src/report/mod.rs": "pub mod b;\n"})

    def test_files_in_a_circle_with_the_module_that_they_lie_in_are_none(self):
        files = {"trace/src/lib.rs": "mod a;\nuse a::b;\npub struct Root;\n", "trace/src/a/mod.rs": "mod b;\nuse b::c;\npub struct A;\n"}
        files["trace/src/a/b.rs"] = "use super::A;\nuse crate::Root;\n"
        files["Cargo.toml"] = CLEAN["Cargo.toml"].replace("cli", "trace")
        self.assertEqual(self.check(files=files)[1], 0)

    def test_no_other_crate_is_found(self):
        for manifest in ("[package]\n", '[workspace]\nmembers = ["sim/core"]\n'):
            self.finds("Cargo.toml has no members with source files", {"Cargo.toml": manifest})

    def test_another_crate_has_neither_modules_nor_figures(self):
        code = "use crate::capi;\n"
        said, status = self.check(files={"cli/src/entry.rs": code, "cli/src/call.rs": "use crate::entry;\n"})
        self.assertEqual((said, status), self.check(), "nor figures")

    def test_conflict_markers_in_what_git_keeps_are_found(self):
        text = "a\n<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\nd\n=======\n"
        for path in ("docs/A.md", "src/policy/rules.rs", "Makefile", "c-tests/a.h"):
            said, status = self.check(files={path: text}, added=["."])
            self.assertEqual((status, "structure: 3 offences" in said), (1, True), said)
            for line in (f"{path}:2: a conflict marker of git: <<<<<<< ours", f"{path}:4: ", f"{path}:6: "):
                self.assertIn(line, said)
        said, status = self.check(files={"docs/A.md": "=======\n<<<<<<< ours\n"}, added=["."])
        self.assertEqual((status, "structure: 1 offences" in said), (1, True), said)

    def test_conflict_markers_that_are_none_are_not_found(self):
        none = "A\n=======\n <<<<<<< ours\n<<<<<<<\n======== x\n>>>>>>>> theirs\n"
        self.assertEqual(self.check(files={"docs/A.md": none}, added=["."]), self.check(added=["."]))
        text = "<<<<<<< ours\n"
        self.assertEqual(self.check(files={"docs/A.md": text, "a.tsv": text}, added=["src", "a.tsv"])[1], 0, "not kept, another kind")

    def test_conflict_markers_without_git_are_said_not_to_be_looked_for(self):
        said, status = self.check(files={"docs/A.md": "<<<<<<< ours\n"})
        self.assertEqual((status, "conflict markers are not looked for" in said), (0, True), said)

    def test_modules_have_their_figures(self):
        said, status = self.check()
        self.assertEqual(status, 0)
        self.assertRegex(said, r"call +1 +2 +1\n")
        self.assertRegex(said, r"policy +3 +8 +0\n")

    def test_files_in_a_circle_across_folders_are_found(self):
        for folder in ("cli/src/doctor", "cli/src"):
            files = {f"{folder}/a.rs": "use super::b;\n", f"{folder}/b.rs": "use super::a;\n"}
            self.finds(f"2 files use each other: {folder}/a.rs, {folder}/b.rs", files)
        apart = {"cli/src/doctor/a.rs": "use crate::b;\n", "cli/src/b.rs": "use crate::doctor::a;\n"}
        self.finds("2 files use each other: cli/src/b.rs, cli/src/doctor/a.rs", apart)

    def test_sizes_are_counted_and_circles_are_named(self):
        files = {"README.md": "word " * 90_000, "docs/USAGE.md": "two words\n", "docs/LIMITS.md": "one\n"}
        files |= {"docs/OPTIONS.md": "not by hand\n", "docs/more/page.md": "by hand\n", "c.txt": "no page\n"}
        files |= {"cli/src/a.rs": "use crate::b;\n", "cli/src/b.rs": "use crate::a;\n"}
        said, status = self.check("--figures", files=files, added=["."])
        self.assertEqual(status, 0, said)
        for line in (
            r"words of README.md +90,000\n",
            r"words of ARCHITECTURE.md +5\n",
            r"words of the user's four pages +3\n",
            r"words of all pages by hand +90,010\n",
            r"words of generated pages +3\n",
            r"lines of src without tests +24  goal +\d+,\d00\n",
            r"lines of cli without tests +3  goal +\d+,\d00\n",
            r"circles of files in the library +0\n",
            r"circles of files in cli +1\n  2 files use each other: cli/src/a.rs, cli/src/b.rs\n",
        ):
            self.assertRegex(said, line)

    def test_figures_fail_if_a_goal_is_exceeded(self):
        for name in ("src", "cli"):
            many = {f"{name}/src/api/many.rs".removeprefix("src/"): "//\n" * 99_999}
            said, status = self.check("--figures", files=many)
            self.assertEqual(status, 1, said)
            self.assertRegex(said, rf"lines of {name} without tests +\d+,\d+  goal +\d+,\d+  over\n")
            self.assertRegex(said, rf"structure: more lines than their goals: {name}(, src/api/many.rs)?\n")
            self.assertEqual(self.check(files=many)[1], 0, "a goal is no offence")

    def test_figures_fail_if_a_file_of_the_library_is_too_long(self):
        lines = "//\n" * 501
        said, status = self.check("--figures", files={"src/policy/tests.rs": lines, "cli/src/long.rs": lines, "src/policy/rules.rs": "//\n" * 500})
        self.assertEqual((status, "files of src over 500 lines              0\n" in said), (0, True), said)
        said, status = self.check("--figures", files={"src/policy/rules.rs": lines})
        self.assertEqual((status, "files of src over 500 lines              1  over\n  src/policy/rules.rs: 501\n" in said), (1, True), said)
        self.assertIn("structure: more lines than their goals: src/policy/rules.rs\n", said)

    def test_forms_of_pairs_and_bytes(self):
        self.finds("cli/src/report/x.rs:1: an arrow between", {"cli/src/report/x.rs": 'fn f() { format!("{} -> {}", 1, 2); }\n'})
        self.finds("cli/src/compare/x.rs:1: bytes in powers", {"cli/src/compare/x.rs": 'fn f() { format!("{size} MiB"); }\n'})


class PathOfACall(unittest.TestCase):
    """A stack that grows from 1000 down; code is named by where it begins."""

    HOOK, RUN, FIND, READ = (path_of_a_call.Function(file, 1, name) for file, name in (("hooks", "hook"), ("run", "run"), ("run", "find"), ("maps", "read")))

    def walk(self, *steps):
        walk = path_of_a_call.Walk()
        for stack, start, *functions in steps:
            walk.step(stack, start, tuple(functions))
        return walk

    def test_calls_and_returns_between_files_are_changes(self):
        hook, run, find, read = (100, self.HOOK), (200, self.RUN), (300, self.FIND), (400, self.READ)
        walk = self.walk((1000, *hook), (900, *hook), (892, *run), (800, *run), (792, *find), (784, *read), (780, *read), (784, *read), (792, *find),
                         (800, *run), (892, *run), (900, *hook))
        self.assertEqual(walk.counts(), (4, 3, 4))
        self.assertEqual(list(walk.tree()), ["hook  hooks:1", "  run  run:1", "    find  run:1", "      read  maps:1"])

    def test_code_of_others_is_no_function_and_may_call_ours(self):
        walk = self.walk((1000, 100, self.HOOK), (992, 200, self.RUN), (984, None), (976, 100, self.HOOK), (984, None), (976, 500, self.RUN),
                         (968, 300, self.FIND))
        self.assertEqual(walk.counts(), (3, 2, 3))
        self.assertEqual(list(walk.tree()), ["hook  hooks:1", "  run  run:1", "    find  run:1"])

    def test_inlined_functions_and_those_jumped_to_are_functions(self):
        walk = self.walk((1000, 100, self.HOOK), (1000, 100, self.HOOK, self.RUN, self.READ), (1000, 100, self.HOOK, self.RUN), (1000, 300, self.FIND),
                         (1008, None), (1000, 400, self.READ))
        self.assertEqual(walk.counts(), (4, 3, 3))
        self.assertEqual(list(walk.tree()), ["hook  hooks:1", "  run  run:1", "    read  maps:1", "    find  run:1"])

    def test_functions_that_are_there_again_are_in_brackets(self):
        hook, run = (1000, 100, self.HOOK), (992, 200, self.RUN)
        walk = self.walk(hook, run, hook, (992, 300, self.FIND), hook, run, (984, 400, self.READ))
        self.assertEqual(list(walk.tree()), ["hook  hooks:1", "  run  run:1", "  find  run:1", "  (run)", "    read  maps:1"])

    def test_closures_instances_and_macros_are_their_function(self):
        sources = path_of_a_call.Sources()
        spans = sources.spans("src/call/run.rs")
        name, first, last = next(span for span in spans if span[0] == "traced")
        traced = sources.function("src/call/run.rs", first, "p2pshim::call::run::traced<fn() -> u8>")
        self.assertEqual((traced.name, traced.file, traced.line), ("traced", "src/call/run.rs", first))
        self.assertIs(sources.function("src/call/run.rs", last, "p2pshim::call::run::traced<u8>::{closure#0}"), traced)
        self.assertIsNone(sources.function("src/call/run.rs", 1, "p2pshim::call::run::{impl#1}::eq"))
        self.assertIsNone(sources.function("../core/src/option.rs", 1, "core::option::Option<u8>::map"))
        made = "src/real/driver/functions.rs"
        _, first, _ = next(span for span in sources.spans(made) if span[0] == "$name")
        calls = [sources.function(made, first, f"p2pshim::real::driver::functions::{name}") for name in ("mem_map", "mem_alloc")]
        self.assertEqual([call.name for call in calls], ["mem_map", "mem_alloc"])
        self.assertIs(sources.function(made, 1, "p2pshim::real::driver::functions::mem_alloc::{closure#0}"), calls[1])


if __name__ == "__main__":
    unittest.main()
