#!/usr/bin/env python3
"""structure.py [--report | --figures] [ROOT]: whether the code keeps to the structure that ARCHITECTURE.md tells.

Reads the src/ of each crate of the workspace, without its tests, and finds

1. a top-level module of the library (a folder or a file directly below src/) that depends on one that it may not depend on;
2. files that use each other in a circle, in any crate;
3. functions that are too long, in any crate;
4. conflict markers: lines that git has left where it could not merge, in the source and documents that it keeps;
5. words of the glossary that are defined a second time.

Prints a line for each, and a table of the top-level modules. Exit status 1 if anything was found; with --report always 0.
With --figures it prints the words of documents, the lines of code with their goals, the files of the library that are too long, and the
circles of every crate, and no more. Exit status 1 if a goal is exceeded.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# A module depends only on modules that come later, and on none of its own line.
ORDER = (("entry", "capi"), ("call",), ("real",), ("policy",), ("objects",), ("record",), ("model",), ("api", "os", "config"), ("machine",))
FUNCTION_LINES = 70
# In which files conflict markers are looked for.
MERGED = re.compile(r"\.(?:rs|md|py|cu?|cpp|hp?p?|js|css|html|mk|sh|in|map|toml|lock)$|(?:^|/)Makefile$")
# Each change that promises fewer lines lowers them.
GOALS = {"src": 28_400, "cli": 26_200}
# Of a file of the library with the tests in it; files that are tests only may have more.
FILE_LINES = 500
USER_PAGES = tuple(f"docs/{name}.md" for name in ("USAGE", "DOCTOR", "LIMITS", "TROUBLESHOOTING"))
# Pages that tests write (`make header`, or the golden machines).
GENERATED = tuple(f"docs/{name}.md" for name in ("INTERCEPTED", "MESSAGES", "OPTIONS", "dev/CONFORMANCE", "dev/MACHINES"))
# Parts of other pages that `make header` writes: VERDICT.md, TRACE_FORMAT.md.
GENERATED_PART = re.compile(r"(?<=<!-- paths: -->\n).*?(?=<!-- end -->)|(?<=writes it. -->\n).*?(?=<!-- The end of the table. -->)", re.S)

STRING = re.compile(r'[bc]?r(#*)".*?"\1|[bc]?"(?:\\.|[^"\\])*"', re.S)
CHARACTER = re.compile(r"b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.)|[^\\'\n])'")


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def clean(text):
    """Code with comments, strings and characters made blank, each line where it was."""
    parts, at = [], 0
    while at < len(text):
        if text.startswith("//", at):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = end_of_comment(text, at)
        elif found := CHARACTER.match(text, at):
            end = found.end()
        elif (text[at] in 'bcr"') and (found := STRING.match(text, at)):
            end = found.end()
        else:
            word = re.compile(r"\w+|.", re.S).match(text, at)
            parts.append(word[0])
            at = word.end()
            continue
        parts.append(blank(text[at:end]))
        at = end
    return "".join(parts)


def end_of_comment(text, at):
    """Comments between /* and */ nest."""
    depth = 0
    for found in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    return len(text)


def end_of_braces(code, at):
    """Where the block ends whose brace is at `at`."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(code, at):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.end()
    return len(code)


def end_of_item(code, at):
    """Where the item ends that begins at `at`: with its block, or with a semicolon."""
    depth = 0
    for found in re.compile(r"[()\[\]{};]").finditer(code, at):
        if found[0] in "([":
            depth += 1
        elif found[0] in ")]":
            depth -= 1
            if depth < 0:
                return found.start()
        elif depth == 0 and found[0] == "{":
            end = end_of_braces(code, found.start())
            is_list = re.match(r"\s*(?:pub(?:\([^)]*\))?\s+)?use\b", code[at:])
            return end if not is_list else code.find(";", end) + 1
        elif depth == 0 and found[0] == ";":
            return found.end()
    return len(code)


class File:
    """A file of a crate's src/, without what is compiled for tests only."""

    def __init__(self, root, source, path):
        self.path = str(path.relative_to(root))
        parts = path.relative_to(source).with_suffix("").parts
        self.module = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
        self.top = self.module[0] if self.module else None
        text = path.read_text()
        code = clean(text)
        self.tests, spans = set(), []
        for found in re.finditer(r"#\[cfg\((?:all\()?test\b[^\]]*\]", code):
            at = found.end()
            while attribute := re.compile(r"\s*#\[").match(code, at):
                at = code.find("]", attribute.end()) + 1
            end = end_of_item(code, at)
            spans.append((found.start(), end))
            if module := re.match(r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", code[at:end]):
                self.tests.add((*self.module, module[1]))
        for start, end in spans:
            code = code[:start] + blank(code[start:end]) + code[end:]
        self.code = code
        tested = {line for start, end in spans for line in range(line_of(text, start), line_of(text, end - 1) + 1)}
        self.lines = len(text.splitlines()) - len(tested)

    def place(self, at):
        return f"{self.path}:{line_of(self.code, at)}"

    def functions(self):
        """Every function with a body: its name, where it begins, how many lines it has."""
        for found in re.finditer(r"\bfn\s+(\$?\w+)", self.code):
            end = end_of_item(self.code, found.end())
            if self.code[end - 1] == "}":
                yield found[1], found.start(), self.code.count("\n", found.start(), end) + 1


def trees(code, at):
    """The paths of a use tree that begins at `at`, each as a tuple; and where it ends."""
    path, token = [], re.compile(r"\s*(::|\w+|\{|\*)")
    while found := token.match(code, at):
        at = found.end()
        if found[1] == "{":
            paths = []
            while not re.compile(r"\s*\}").match(code, at):
                inner, end = trees(code, at)
                paths += inner
                end = re.compile(r"\s*,?").match(code, end).end()
                if end == at:
                    break
                at = end
            at = re.compile(r"\s*\}?").match(code, at).end()
            return [(*path, *inner) for inner in paths], at
        if found[1] == "::":
            continue
        path.append(found[1])
        if alias := re.compile(r"\s+as\s+(\w+)").match(code, at):
            return [(*path, f"as {alias[1]}")], alias.end()
        if not re.compile(r"\s*::").match(code, at):
            break
    return [tuple(path)], at


def files_of(root, source):
    """The files of a crate, without those of tests."""
    files = [File(root, source, path) for path in sorted(source.rglob("*.rs"))]
    tests = set().union(*(file.tests for file in files))
    is_test = lambda file: "tests" in file.module or any(file.module[: len(test)] == test for test in tests)
    return [file for file in files if not is_test(file)]


def members(root):
    """The other crates of the workspace."""
    manifest = root / "Cargo.toml"
    listed = re.search(r"^members\s*=\s*\[([^\]]*)\]", manifest.read_text(), re.M) if manifest.exists() else None
    return [Crate(root, member) for member in re.findall(r'"([^"]+)"', listed[1])] if listed else []


class Crate:
    def __init__(self, root, folder=""):
        self.folder = folder
        self.files = {file.module: file for file in files_of(root, root / folder / "src")}
        self.imports = defaultdict(dict)
        self.edges = []
        for file in self.files.values():
            self.read_paths(file)

    def read_paths(self, file):
        """Notes which paths the file has, and which names it imports."""
        self_paths, seen = [], []
        for found in re.finditer(r"\b((?:pub(?:\([^)]*\))?\s+)?use\s+)?(?:::)?\b(\w+)\s*::(?!<)", file.code):
            at = found.start(2)
            if any(start <= at < end for start, end in seen):
                continue
            before = file.code[max(0, at - 30) : at]
            if re.search(r"::\s*$", before) or re.search(r"pub\(in\s+$", before) or (before[-1:] == "$" and found[2] != "crate"):
                continue
            paths, end = trees(file.code, at)
            seen.append((at, end))
            is_use = re.search(r"\buse\s+(?:::)?$", before) is not None
            is_passed_on = re.search(r"\bpub(?:\([^)]*\))?\s+use\s+(?:::)?$", before) is not None
            for path in paths:
                self_paths.append((at, path, is_use, is_passed_on))
        inline = [
            (found.end() - 1, end_of_braces(file.code, found.end() - 1))
            for found in re.finditer(r"\bmod\s+\w+\s*\{", file.code)
        ]
        # Imports first: other paths begin with them.
        for at, path, is_use, is_passed_on in sorted(self_paths, key=lambda one: not one[2]):
            depth = sum(start < at < end for start, end in inline)
            absolute = self.absolute(file, path, depth)
            if absolute is None:
                continue
            if is_use and depth == 0:
                *most, last = absolute
                name = last[3:] if last.startswith("as ") else last
                if name == "self":
                    name, absolute = most[-1], tuple(most)
                self.imports[file.module][name] = tuple(part for part in absolute if not part.startswith("as "))
            self.edges.append((file, at, tuple(part for part in absolute if not part.startswith("as ")), is_passed_on))

    def absolute(self, file, path, depth):
        """A path from the crate's root on; none if it leads elsewhere."""
        first, *rest = path
        if first == "crate":
            return tuple(rest) or None
        if first == "self" and rest:
            return (*file.module, *rest)
        if first == "super":
            ups = next((n for n, part in enumerate(path) if part != "super"), len(path))
            up = max(0, ups - depth)
            module = file.module[: len(file.module) - up] if up else file.module
            return (*module, *path[ups:]) or None
        if (*file.module, first) in self.files:
            return (*file.module, *path)
        if imported := self.imports[file.module].get(first):
            return (*imported, *rest)
        return None

    def targets(self, path, hops=8):
        """The file that a path leads to, after those that pass it on: who names them uses them, too."""
        length = next(length for length in range(len(path), -1, -1) if path[:length] in self.files or not length)
        module, rest = path[:length], path[length:]
        passed = rest and self.imports[module].get(rest[0])
        through = [self.files[module]] if module in self.files else []
        if hops and passed and passed != path:
            return through + self.targets((*passed, *rest[1:]), hops - 1)
        return through

    def uses(self):
        """Uses of one file by another, and where. A module does not use the names that it passes on."""
        for file, at, path, is_passed_on in self.edges:
            for target in self.targets(path):
                if target is not file and not is_passed_on:
                    yield file, target, at


def rank(top):
    return next((rank for rank, tops in enumerate(ORDER) if top in tops), None)


def between_modules(crate):
    for top in sorted({file.top for file in crate.files.values() if file.top}):
        if rank(top) is None:
            yield f"module {top} has no place in the order"
    # The first module of a path counts, whoever passes the name on: `real` must not reach `call` through `policy`.
    seen = set()
    for file, at, path, _ in crate.edges:
        direct = path[0] if (path[0],) in crate.files else None
        target = (crate.targets(path) or [None])[-1]
        for top in {direct, target.top if target else None} - {None, file.top}:
            place = file.place(at)
            if file.top is None or rank(file.top) is None or rank(top) is None or (place, top) in seen:
                continue
            seen.add((place, top))
            if rank(file.top) >= rank(top):
                yield f"{place}: {file.top} may not use {top} ({'::'.join(path)})"


def knots(crate):
    """Files that use each other in a circle: in the library those of one top-level module, in another crate any two, but that a file
    may use what the modules that it lies in define."""
    graph, example = defaultdict(set), {}
    for file, target, at in crate.uses():
        is_above = file.module[: len(target.module)] == target.module
        if not is_above if crate.folder else file.top and file.top == target.top:
            graph[file.path].add(target.path)
            example.setdefault((file.path, target.path), file.place(at))
    reach = {path: reachable(graph, path) for path in graph}
    done = set()
    for path in sorted(graph):
        knot = sorted({other for other in reach[path] if path in reach.get(other, ())})
        if len(knot) < 2 or path in done:
            continue
        done |= set(knot)
        places = [example[one, other] for one in knot for other in sorted(graph[one]) if other in knot]
        yield f"{len(knot)} files use each other: {', '.join(knot)} (by {', '.join(sorted(places))})"


def reachable(graph, start):
    found, todo = set(), [start]
    while todo:
        for other in graph.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def lengths(crate):
    for file in crate.files.values():
        for name, at, lines in file.functions():
            if lines > FUNCTION_LINES:
                yield f"{file.place(at)}: fn {name} has {lines} lines, at most {FUNCTION_LINES}"


def forms(root):
    """Amounts and pairs have one form in logs, reports and comparisons: `1.0 GB`, and `0>1` or `GPU 0 > GPU 1`."""
    arrow, unit = re.compile(r'"[^"\n]*\} ?(->|\u2192) ?\{'), re.compile(r'"[^"\n]*\} ?[KMGTP]iB')
    for folder in ("src/record", "cli/src/report", "cli/src/compare"):
        for path in sorted((root / folder).rglob("*.rs")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for form, what in ((arrow, "an arrow between the ends of a pair"), (unit, "bytes in powers of 1024")):
                    if form.search(line):
                        yield f"{path.relative_to(root)}:{number}: {what}: {line.strip()}"


ATOMIC = re.compile(r"\.\s*(load|store|swap|compare_exchange(?:_weak)?|fetch_\w+)\(")
ORDERS = r"\b(Relaxed|Acquire|Release|AcqRel|SeqCst)\b"


def atomics(code):
    """What code does with atomics: the word, whether it is a load, the first order, and where."""
    for found in ATOMIC.finditer(code):
        depth, start = 0, found.start()
        while start and (depth or re.match(r"[\w.:()\[\]?]", code[start - 1])):
            depth += (code[start - 1] in ")]") - (code[start - 1] in "([")
            if depth < 0:
                break
            start -= 1
        depth, end = 1, found.end()
        while depth and end < len(code):
            depth += (code[end] in "([{") - (code[end] in ")]}")
            end += 1
        if orders := re.findall(ORDERS, code[found.end() : end]):
            # The order of success: others may stand in what is stored, in closures, and for failure.
            order = orders[{"fetch_update": 0}.get(found[1], -2 if found[1].startswith("compare") else -1)]
            is_fenced = re.match(r"\s*;\s*fence\(Release\)", code[end:]) is not None
            # The end of a range whose beginning is an atomic too.
            word = code[start : found.start()].split("..")[-1]
            yield word, found[1] == "load", "Release" if is_fenced else order, found.start()


# Which page says of each word why its order is enough.
MEMORY_ORDER = "docs/dev/memory-order.md"


def listed(root):
    """The words of the page's two tables, by files: those that publish, and those that are Relaxed."""
    page = root / MEMORY_ORDER
    parts = (page.read_text() if page.exists() else "").split("\n## Relaxed")
    tables = []
    for part in (parts + [""])[:2]:
        rows = re.findall(r"^\| `([^`]+\.rs)` \| ([^|]+) \|", part, re.MULTILINE)
        tables.append({path: re.findall(r"`([^`]+)`", words) for path, words in rows})
    return tables


# Words that publish, and are Relaxed in so many loads and changes. A further one needs a reason, in the page and here.
RELAXED_BESIDE = {
    ("src/call/order.rs", "IS_ON"): (1, 0),
    ("src/objects/captures.rs", "UNDER_WAY"): (1, 0),
    ("src/objects/index.rs", "self.changes"): (2, 1),
    ("src/objects/index.rs", "self.sizes"): (1, 0),
    ("src/objects/index.rs", "self.word"): (1, 0),
    ("src/objects/map.rs", "row[KEY]"): (5, 0),
    ("src/objects/map.rs", "row[LINK]"): (4, 0),
    ("src/objects/memory.rs", "self.version"): (3, 0),
    ("src/objects/past.rs", "to"): (1, 1),
    ("src/os/alloc.rs", "self.given"): (1, 0),
    ("src/policy/waits/entries.rs", "entry[STREAM]"): (2, 0),
    ("src/policy/waits/entries.rs", "pair[FIRST_BLOCK]"): (1, 0),
    ("src/policy/waits/entries.rs", "self.pair_count"): (1, 0),
    ("trace/src/writer/clock.rs", "self.u64_at(at)"): (1, 0),
    ("trace/src/writer/left.rs", "next"): (1, 0),
    ("trace/src/writer/left.rs", "word"): (2, 0),
    ("trace/src/writer/room.rs", "self.ready"): (1, 0),
    ("trace/src/writer/segment.rs", "cell.state"): (2, 0),
    ("trace/src/writer/segment.rs", "self.0.state"): (1, 0),
    ("trace/src/writer/segment.rs", "self.next"): (1, 0),
}


def published(root, crates):
    """Each word that publishes others, and each that is Relaxed anywhere, is in a table of the page; nothing else is."""
    publish, relaxed = listed(root)
    files = [file for crate in crates for file in crate.files.values() if file.path.startswith(("src/", "trace/src/", "host/src/"))]
    stored, loose = set(), {}
    for file in files:
        words, free = publish.get(file.path, []), relaxed.get(file.path, [])
        for word, is_load, order, at in atomics(file.code):
            if not is_load and order in ("Release", "AcqRel", "SeqCst"):
                stored.add((file.path, word))
                if word not in words:
                    yield f"{file.place(at)}: {word} publishes, and {MEMORY_ORDER} does not say what"
            if order == "Relaxed":
                kinds = loose.setdefault((file.path, word), [0, 0])
                kinds[0 if is_load else 1] += 1
                if word not in free:
                    yield f"{file.place(at)}: {word} is Relaxed, and {MEMORY_ORDER} does not say why"
        for found in re.finditer(r"(?<!compiler_)\bfence\(", file.code):
            if not words:
                yield f"{file.place(found.start())}: a fence, and {MEMORY_ORDER} does not say what is published"
    both = {place: tuple(counts) for place, counts in loose.items() if place in stored and place[1] in relaxed.get(place[0], [])}
    for place in sorted(set(both) | (stored & set(RELAXED_BESIDE))):
        if both.get(place) != RELAXED_BESIDE.get(place):
            yield (f"{place[0]}: {place[1]} publishes, and has {both.get(place, (0, 0))} Relaxed loads and changes, "
                   f"where RELAXED_BESIDE has {RELAXED_BESIDE.get(place, (0, 0))}")
    for known, table, what in ((stored, publish, "publishes"), (loose, relaxed, "has")):
        for path, words in table.items():
            for word in words:
                if (path, word) not in known:
                    yield f"{MEMORY_ORDER}: {path} {what} nothing {'by' if table is publish else 'Relaxed by'} {word}"


def unguarded(root):
    """Each function of the C interface holds signals back and stops a panic, but for those that handlers may call: they only look up."""
    function = re.compile(r'((?:///.*\n)*)#\[unsafe\(no_mangle\)\]\npub (?:unsafe )?extern "C" fn (\w+)(.*?\n)\}\n', re.DOTALL)
    for path in sorted((root / "src/capi").glob("*.rs")):
        for doc, name, body in function.findall(path.read_text()):
            if "in signal handlers too" not in doc and not re.search(r"\b(guarded|unbroken|undisturbed)\(", body):
                yield f"{path.relative_to(root)}: {name} neither holds signals back nor stops a panic"


# Fields and statics outside `objects` whose type may keep an object of the driver by its handle or address, and why each does not, or may.
KEPT_ELSEWHERE = {
    ("src/call/control.rs", "looked_up"): "counts of functions",
    ("src/call/control.rs", "called"): "counts of functions",
    ("src/call/failures.rs", "TIMES"): "functions and codes",
    ("src/call/origin.rs", "COUNTS"): "places in the program",
    ("src/call/shared.rs", "TIMES"): "functions and codes",
    ("src/capi/event.rs", "EVER"): "callbacks",
    ("src/model/origin.rs", "callers"): "places in the program",
    ("src/policy/access/registry.rs", "taken"): "memory of ours, by the context that it is in",
    ("src/policy/ended.rs", "asked"): "answers within one call",
    ("src/policy/graph.rs", "prepared"): "graphs within one call, by threads",
    ("src/policy/graph.rs", "nodes"): "graphs within one call",
    ("src/policy/graph.rs", "copies"): "graphs within one call",
    ("src/call/order/memory.rs", "PARAMETERS"): "kernels' parameters, only while order is checked",
    ("src/call/order/enforce.rs", "places"): "names of places in the code",
    ("src/call/order/calls.rs", "with"): "contexts within one call",
    ("src/call/order/calls.rs", "work_of"): "contexts within one call",
    ("src/policy/order/state.rs", "by_handle"): "the clock of each stream, only while order is checked",
    ("src/policy/order/state.rs", "contexts"): "the default stream's clock, likewise",
    ("src/policy/order/state.rs", "events"): "the clock of each event, likewise",
    ("src/policy/order/state.rs", "graphs"): "the clock of each launch, likewise",
    ("src/policy/order/state.rs", "memory"): "accesses, likewise",
    ("src/policy/order/state.rs", "shared_events"): "events of other processes, likewise",
    ("src/policy/order/state.rs", "within_graphs"): "races between nodes, until the first launch",
    ("src/policy/order/files.rs", "events"): "the files of events, only while order is checked",
    ("src/policy/order/files.rs", "memory"): "the files of memory, likewise",
    ("src/policy/order/state.rs", "values"): "values in memory, likewise",
    ("src/policy/staging/rings.rs", "kept_by"): "threads",
    ("src/policy/validate/mod.rs", "found"): "places in the program",
    ("src/real/stack.rs", "returns"): "places in the program, and on the stack",
    ("src/real/stack.rs", "callers"): "places in the program",
    ("src/policy/waits/entries.rs", "rows"): "copies, in the objects' index",
    ("src/policy/waits/entries.rs", "pairs"): "endpoints of copies, in the objects' index",
    ("src/policy/waits/entries.rs", "spare"): "events of ours",
    ("src/real/stack.rs", "read"): "words of a stack",
    ("src/record/trace.rs", "origins"): "places in the program",
    ("src/record/trace.rs", "numbers"): "places in the program",
}
# A collection by handles or addresses, or rows that are found by them.
BY_HANDLE = re.compile(r"\b(?:(?:BTree|Hash)(?:Map|Set)<\(*(?:usize|u64)\b|Vec<\(*usize\b|Index<|Map\b(?!<)|Table<)|\[AtomicUsize;")


def kept_elsewhere(crate):
    """The driver's objects are kept in `objects`, not where they are used."""
    known = set()
    for file in crate.files.values():
        if file.top in ("objects", "os"):
            continue
        code, fields = file.code, []
        for found in re.finditer(r"\bstruct\s+\w+[^;{(]*\{", code):
            end = end_of_braces(code, found.end() - 1)
            body = re.finditer(r"\b(\w+):\s*([^\n]*)", code[found.end() : end])
            fields += [(found.end() + field.start(), field[1], field[2]) for field in body]
        for pattern in (r"\bstatic\s+(\w+):\s*([^=]*)", r"\btype\s+(\w+)\s*=\s*([^;]*)"):
            fields += [(found.start(), found[1], found[2]) for found in re.finditer(pattern, code)]
        for at, name, kind in fields:
            if BY_HANDLE.search(kind):
                known.add((file.path, name))
                if (file.path, name) not in KEPT_ELSEWHERE:
                    yield f"{file.place(at)}: {name} may keep an object of the driver outside `objects`, and KEPT_ELSEWHERE does not say why"
    paths = {file.path for file in crate.files.values()}
    for path, name in sorted(reason for reason in set(KEPT_ELSEWHERE) - known if reason[0] in paths):
        yield f"{path}: KEPT_ELSEWHERE has {name}, which is not there"


# The one place of an address to write to, which is filled in at a release.
CONTACT = "packaging/contact"


def contacts(root):
    """Packages have the address of packaging/contact, one line of a name and an address, and no other."""
    if not (root / "packaging").is_dir():
        return
    place = root / CONTACT
    if not place.is_file() or not re.fullmatch(r"[^<>|\n]+ <[\w.+-]+@[\w.-]+>\n", place.read_text()):
        yield f"{CONTACT}: it is one line, `NAME <ADDRESS>`"
    for path in sorted((root / "packaging").rglob("*")):
        if path.is_file() and path != place and (found := re.search(r"<[\w.+-]+@[\w-]+(?:\.[\w-]+)+>", path.read_text(errors="replace"))):
            yield f"{path.relative_to(root)}: {found[0]} belongs into {CONTACT}"


# Crates whose comments are read sentence by sentence.
PLAIN = ("src", "host/src", "trace/src", "cli/src", "sim")


def inverted(root):
    """Sentences of comments that begin with What or Who: the actor comes first."""
    for folder in PLAIN:
        for path in sorted(Path(root, folder).rglob("*.rs")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if found := re.search(r"//[/!]?\s*(?:.*[.!?] )?((?:What|Who)\b[^.!?]*)", line):
                    yield f"{path.relative_to(root)}:{number}: a sentence begins with {found[1].split()[0]}: {found[1][:60]}"


def defined_twice(root):
    """Words that GLOSSARY.md defines twice, or that another page or a doc comment defines again: `*word* ...: ` or `A *word* is`."""
    glossary, defined = root / "docs/dev/GLOSSARY.md", {}
    for number, line in enumerate(glossary.read_text().splitlines() if glossary.is_file() else (), 1):
        for word in re.findall(r"\*([^*]+)\*", line.split(" | ")[0]) if line.startswith("| *") else ():
            if defined.setdefault(word.lower(), number) != number:
                yield f"docs/dev/GLOSSARY.md:{number}: *{word}* is defined in line {defined[word.lower()]}"
    words = "|".join(map(re.escape, defined)) or "(?!)"
    again = re.compile(rf"(?<![*`])\*({words})\*(?!\*)[^*.:;|`]{{0,40}}:(?:\s|$)|\bAn? \*({words})\* is\b", re.IGNORECASE)
    pages = {*root.glob("*.md"), *root.glob("docs/**/*.md")} - {glossary, root / "CHANGELOG.md"}
    for path in sorted([*pages, *(path for folder in PLAIN for path in Path(root, folder).rglob("*.rs"))]):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if (path.suffix == ".md" or re.match(r"\s*//[/!]", line)) and (found := again.search(line)):
                yield f"{path.relative_to(root)}:{number}: *{found[1] or found[2]}* is defined in docs/dev/GLOSSARY.md"


def conflict_markers(root):
    """Lines that git has left where it could not merge. One of = counts between the two others only: it can be below a heading."""
    for path in kept_by_git(root):
        if not MERGED.search(path) or not (root / path).is_file():
            continue
        is_open = False
        for number, line in enumerate((root / path).read_text(errors="replace").splitlines(), 1):
            begins, ends = line.startswith("<" * 7 + " "), line.startswith(">" * 7 + " ")
            if begins or ends or (is_open and line == "=" * 7):
                yield f"{path}:{number}: a conflict marker of git: {line}"
            is_open = (is_open or begins) and not ends


def kept_by_git(root):
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    except OSError:
        listed = None
    if listed is None or listed.returncode:
        print("git lists no files here: conflict markers are not looked for")
        return []
    # A file in conflict is listed once for each side.
    return sorted({path for path in listed.stdout.split("\0") if path})


def print_sizes(root, crates):
    """Words of documents, lines of crates, long files, and circles. Which goals are exceeded."""
    texts = {path: (root / path).read_text() for path in kept_by_git(root) if path.endswith(".md")}
    words = {path: len(GENERATED_PART.sub("", text).split()) for path, text in texts.items()}
    parts = sum(len(part.split()) for text in texts.values() for part in GENERATED_PART.findall(text))
    pages = {
        "README.md": ["README.md"],
        "ARCHITECTURE.md": ["ARCHITECTURE.md"],
        "the user's four pages": USER_PAGES,
        "docs/MEASUREMENTS.md": ["docs/MEASUREMENTS.md"],
        "CHANGELOG.md": ["CHANGELOG.md"],
        "all pages by hand": words.keys() - set(GENERATED),
        "generated pages": GENERATED,
    }
    for what, paths in pages.items():
        print(f"{f'words of {what}':<34} {sum(words.get(path, 0) for path in paths):>7,}")
    print(f"{'words of generated parts of pages':<34} {parts:>7,}")
    exceeded = []
    for name in ("src", "cli", "sim"):
        total = sum(lines_of(one) for one in crates if (one.folder or "src").split("/")[0] == name)
        goal = GOALS.get(name, total)
        exceeded += [name] if total > goal else []
        note = f"  goal {goal:>7,}{'  over' if total > goal else ''}" if name in GOALS else ""
        print(f"{f'lines of {name} without tests':<34} {total:>7,}{note}")
    files = {file.path: len((root / file.path).read_text().splitlines()) for file in crates[0].files.values()}
    long = [path for path, lines in files.items() if lines > FILE_LINES]
    exceeded += long
    print(f"{f'files of src over {FILE_LINES} lines':<34} {len(long):>7,}{'  over' if long else ''}")
    for path in long:
        print(f"  {path}: {files[path]:,}")
    for one in crates:
        found = list(knots(one))
        print(f"{'circles of files in ' + (one.folder or 'the library'):<34} {len(found):>7,}")
        for knot in found:
            print("  " + knot.split(" (by ")[0])
    return exceeded


def lines_of(crate):
    return sum(file.lines for file in crate.files.values())


def print_modules(crate):
    tops = defaultdict(lambda: [0, 0, 0])
    for file in crate.files.values():
        if file.top:
            figures_of_module = tops[file.top]
            figures_of_module[0] += 1
            figures_of_module[1] += file.lines
            figures_of_module[2] += len(re.findall(r"\bunsafe\s*\{", file.code))
    print(f"{'module':<10} {'files':>6} {'lines':>7} {'unsafe blocks':>14}")
    for top, (files, lines, unsafe) in sorted(tops.items(), key=lambda item: (rank(item[0]) or 0, item[0])):
        print(f"{top:<10} {files:>6} {lines:>7,} {unsafe:>14,}")


def main(given):
    arguments = [argument for argument in given if argument not in ("--report", "--figures")]
    is_report = "--report" in given
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    crate, others = Crate(root), members(root)
    if "--figures" in given:
        exceeded = print_sizes(root, [crate, *others])
        sys.exit(f"structure: more lines than their goals: {', '.join(exceeded)}" if exceeded else 0)
    total = 0
    checks = {
        "modules": list(between_modules(crate)),
        "circles of files": [knot for one in [crate, *others] for knot in knots(one)],
        "lengths": [length for one in [crate, *others] for length in lengths(one)],
        "forms": list(forms(root)),
        "words that publish": list(published(root, [crate, *others])),
        "objects kept elsewhere": list(kept_elsewhere(crate)),
        "inverted sentences": list(inverted(root)),
        "words defined twice": list(defined_twice(root)),
        "C interface": list(unguarded(root)),
        "contacts": list(contacts(root)),
        "conflict markers": list(conflict_markers(root)),
        "crates": [] if any(other.files for other in others) else ["Cargo.toml has no members with source files"],
    }
    for what, offences in checks.items():
        total += len(offences)
        if offences or is_report:
            print(f"{what}: {len(offences)}")
        for offence in offences:
            print(f"  {offence}")
    print_modules(crate)
    if total and not is_report:
        sys.exit(f"structure: {total} offences")


if __name__ == "__main__":
    main(sys.argv[1:])
