#!/usr/bin/env python3
"""Runs the commands of README.md, docs/*.md and docs/dev/*.md, and follows the links of all documents.

    check.py run [FILE…]  the commands, but those that are marked, on simulated GPUs: of these documents, or of all
    check.py gpu      the commands marked as needing GPUs, on this machine's (c-tests/gpu/run.py calls it in the bundle)
    check.py mpi      the commands marked as needing mpirun, with one from PyPI, on simulated GPUs
    check.py marked   lists what all these leave out
    check.py links    files and headings that documents point to, and pages that anything else names; links to elsewhere are counted, not fetched
    check.py walk     README.md's quick start from its first command on, as a new user goes it: `make` too
    check.py itself   that this script sees what is wrong

# How documents are written
A block of commands is fenced as `sh`, or, if its output is shown, as `console`: each command after `$ ` (`> ` continues it), and
then all that it writes. Any other block is fenced as something else (`text`, `c`) and is not run; nothing is indented by four.
Blocks of a document run in order in one folder, which looks like the repository's after `make build` and has docs/walk/app.c as
`./app`; the built command is on PATH, and nothing else is set: no LD_LIBRARY_PATH. Every command has to end with 0.

The output has to be the one that is shown, whatever its addresses, times, dates, process ids, decimal fractions (speeds, or `-` where
none was measured) and widths of columns. In a shown line `…` stands for any text; a line that is `…` stands for any lines.

A comment alone on the line before a block says that it is not run here, and why: `<!-- needs: REASON -->`, see REASONS.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600 * int(os.environ.get("P2PSHIM_PATIENCE", "1"))  # after that, a block hangs
TRIES = 2
# And so often where it is said that the machine had too little time for a pair.
BUSY_TRIES = 12
BUSY = (" are slower than copies through the host (", "to be verified later", "the devices are busy")
REASONS = {
    "gpu": "GPUs; the bundle of `make gpu-bundle` runs it on a machine that has them",
    "ci": "what continuous integration runs itself: targets of make, and tests of their own",
    "network": "something that is fetched from a network",
    "root": "more rights than a test should have",
    "container": "Docker or Podman, and GPUs",
    "mpi": "an mpirun; `check.py mpi` runs it",
    "cluster": "Slurm, or several hosts",
    "torch": "PyTorch, and GPUs",
    "terminal": "somebody who types",
    "fragment": "nothing: it shows a form, and is no whole command",
}
# By other ways to call this script.
RUN_HERE = ("mpi", "ci")


class Block:
    """A fenced block: where it is, its language, the mark before it, and its lines."""

    def __init__(self, file, line, language, mark, lines):
        self.file, self.line, self.language, self.mark, self.lines = file, line, language, mark, lines

    def __str__(self):
        return f"{self.file.relative_to(ROOT)}:{self.line}"

    def is_commands(self):
        return self.language in ("sh", "console")

    def commands(self):
        """Pairs of a command and the lines that it is to write, or None if these are not shown."""
        if self.language == "sh":
            return [("\n".join(self.lines), None)]
        found = []
        for line in self.lines:
            if line.startswith("$ "):
                found.append(([line[2:]], []))
            elif line.startswith("> ") and found and not found[-1][1]:
                found[-1][0].append(line[2:])
            elif found:
                found[-1][1].append(line)
        return [("\n".join(command), output) for command, output in found]


def blocks_of(file, problems):
    """All fenced blocks of a document. What is written in another way than the head of this file says is a problem."""
    blocks, fence, mark, in_list, before = [], None, None, False, ""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if fence:
            if line.strip() == "```":
                blocks.append(fence)
                fence = mark = None
            else:
                fence.lines.append(line[fence.indent:])
            continue
        opened = re.match(r"( *)```(\w*)$", line)
        if opened:
            fence = Block(file, number, opened[2], mark, [])
            fence.indent = len(opened[1])
            if mark and mark not in REASONS:
                problems.append(f"{fence}: `{mark}` is no reason; there are {', '.join(REASONS)}")
        elif "```" in line and line.lstrip().startswith("```"):
            problems.append(f"{file.relative_to(ROOT)}:{number}: a fence with more than a language after it")
        elif line.strip():
            marked = re.fullmatch(r"\s*<!-- (?:needs: )?([\w ]+) -->\s*", line)
            mark = marked[1] if marked else None
            if not line.startswith(" "):
                in_list = bool(re.match(r"([-*]|\d+\.) ", line))
            elif line.startswith("    ") and not before.strip() and not in_list:
                problems.append(f"{file.relative_to(ROOT)}:{number}: an indented block; fence it, so that it is known whether to run it")
        before = line
    if fence:
        problems.append(f"{fence}: the block has no end")
    for block in blocks:
        if not block.is_commands() and any(line.startswith("$ ") for line in block.lines):
            problems.append(f"{block}: commands in a block that is not fenced as `console` or `sh`")
        if block.language == "console" and not (block.lines and block.lines[0].startswith("$ ")):
            problems.append(f"{block}: a `console` block begins with `$ `")
    return blocks


def normal(line):
    """A line without what differs between two runs that do the same."""
    for pattern, word in (
        (r"\b\d\d:\d\d:\d\d(\.\d+)?\b", "CLOCK"),
        (r"\b\d{4}-\d\d-\d\d\b", "DATE"),
        (r"0x[0-9a-f]+", "ADDRESS"),
        (r"(?<![\w/])\d\d+/\d\d+(?![\w/])", "THREAD"),
        (r"\bpid \d+", "pid N"),
        (r"(?<![\w.])\d+(\.\d+)? ?(ns|us|µs|ms|s)\b", "TIME"),
        (r"(?<![\w.])\d+\.\d+(?![\w.]| [kMG]?B\b)", "FRACTION"),
        (r"~FRACTION +\d[\d ]* of (?=\d)", "FRACTION SOME of "),  # timed
        (r"(?<= )-(?= |$)", "FRACTION"),  # not measured
        (r"\s+", " "),
    ):
        line = re.sub(pattern, word, line)
    return line.strip()


def same(shown, written):
    """Whether these lines are those that are shown."""
    if not shown:
        return not written
    if shown[0] == "…":
        return any(same(shown[1:], written[skipped:]) for skipped in range(len(written) + 1))
    pattern = ".*".join(re.escape(part) for part in shown[0].split("…"))
    return bool(written) and re.fullmatch(pattern, written[0]) is not None and same(shown[1:], written[1:])


class Place:
    """Where a document's commands run: a folder as the repository's after `make build`, with a program to try them on."""

    def __init__(self, release, libraries, app):
        self.folder = Path(tempfile.mkdtemp(prefix="p2pshim-docs-"))
        (ROOT / "target").mkdir(exist_ok=True)
        (self.folder / "target").mkdir()
        # Not what somebody has left there who followed the documents.
        for name in ("c-tests", "docs", "include", "sim", *(f"target/{built.name}" for built in (ROOT / "target").iterdir())):
            (self.folder / name).symlink_to(ROOT / name)
        # Documents speak of what users build, and that is tested which was built for tests.
        (self.folder / "target/release").unlink(missing_ok=True)
        (self.folder / "target/release").symlink_to(release)
        shutil.copy(app, self.folder / "app")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("P2PS", "LD_PRELOAD", "XDG_"))}
        self.environment = {**kept, "PATH": f"{release}:{os.environ['PATH']}", "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        # Real GPUs' libraries may be found by what is set already; cargo sets it too.
        if libraries is not None:
            self.environment["LD_LIBRARY_PATH"] = str(libraries)

    def run(self, block, before="", written=None):
        """The faults of the block, as texts. The output of its commands is added to `written`."""
        script = before + "".join(f"{command}\nprintf '\\n\\001%d\\n' $?\n" for command, _ in block.commands())
        if block.language == "sh":
            script = "set -e\n" + script
        try:
            done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
        except subprocess.TimeoutExpired as late:
            return [f"{block}: no end after {SECONDS} s: {(late.stdout or b'').decode(errors='replace')[-500:]}"]
        # How far the doctor or a check is, it says only where it takes long.
        output = re.sub(r"^(?:doctor|p2pshim: check): .*, \d+ of \d+\n", "", done.stdout.decode(errors="replace"), flags=re.M)
        parts = re.split(r"\n\x01(\d+)\n", output)
        problems = []
        for index, (command, shown) in enumerate(block.commands()):
            text = parts[2 * index] if 2 * index < len(parts) else ""
            status = parts[2 * index + 1] if 2 * index + 1 < len(parts) else done.returncode
            if str(status) != "0":
                problems.append(f"{block}: `{command}` ends with {status}:\n{text}")
            elif shown is not None and not same(trimmed(shown), trimmed(text.splitlines())):
                problems.append(f"{block}: `{command}` writes something else than is shown:\n{text}")
            if written is not None:
                written.append(text)
        return problems


def trimmed(lines):
    lines = [normal(line) for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def documents():
    """All, or those that are named."""
    named = [ROOT / name for name in sys.argv[2:]]
    return named or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/dev").glob("*.md"))]


def all_blocks():
    problems = []
    found = {file: [block for block in blocks_of(file, problems) if block.is_commands()] for file in documents()}
    return found, problems


def compiled(command, libraries=()):
    program = Path(tempfile.mkdtemp(prefix="p2pshim-docs-app-")) / "app"
    subprocess.run([*command, str(ROOT / "docs/walk/app.c"), *libraries, "-o", str(program)], check=True, cwd=ROOT)
    return program


def run_all(wanted, release, libraries, app):
    """Runs the blocks with a mark that is wanted, documents side by side."""
    found, problems = all_blocks()

    def run_document(file):
        blocks = [block for block in found[file] if block.mark == wanted]
        if not blocks:
            return 0, []
        # Once more from the beginning if need be: on a machine that is too busy a pair is verified later than is shown.
        for tried in range(1, BUSY_TRIES + 1):
            place = Place(release, libraries, app)
            wrong = [problem for block in blocks for problem in place.run(block)]
            shutil.rmtree(place.folder)
            is_busy = any(said in problem for problem in wrong for said in BUSY)
            if not wrong or tried >= TRIES and not is_busy:
                break
        return len(blocks), wrong

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run_document, found))
    shutil.rmtree(app.parent)
    problems += [problem for _, wrong in results for problem in wrong]
    return sum(count for count, _ in results), problems


def compiled_app():
    return compiled(["gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-isystem", "target/nvidia/cu12/include"],
                    ["target/nvidia/cu12/lib/libcudart.so.12"])


def run():
    count, problems = run_all(None, ROOT / "target/built", "", compiled_app())
    return problems, f"{count} blocks of commands did what documents say"


def mpi():
    for command in ("c-tests/fetch-wheels mpi", "target/mpi/mpich-*.data/data/bin/mpirun -np 1 true"):
        tried = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
        if tried.returncode != 0:
            return [], f"skipped: documents' commands with mpirun: {command}: {' '.join(tried.stderr.split())}"
    os.environ["PATH"] += f":{next(ROOT.glob('target/mpi/mpich-*.data/data/bin'))}"
    count, problems = run_all("mpi", ROOT / "target/built", "", compiled_app())
    return problems, f"{count} blocks of commands ran with mpirun"


def gpu():
    # The command and the library lie in the bundle's own folder, and are looked for where they are built.
    (ROOT / "target").mkdir(exist_ok=True)
    app = compiled(["nvcc", "-Wno-deprecated-gpu-targets", "-cudart", "static"])
    count, problems = run_all("gpu", ROOT, None, app)
    return problems, f"{count} blocks of commands ran on GPUs"


def walk():
    """README.md's quick start: what is built stays in the repository, all else is done beside it."""
    begun = monotonic()
    problems, written = [], []
    readme = ROOT / "README.md"
    text = readme.read_text()
    begins = text[:text.index("\n## Quick start\n")].count("\n") + 1
    ends = begins + text[text.index("\n## Quick start\n") + 1:].partition("\n## ")[0].count("\n")
    here = [block for block in blocks_of(readme, problems) if block.is_commands() and begins < block.line < ends]
    blocks = [block for block in here if block.mark in (None, "ci")]
    place = Place(ROOT / "target/release", "", Path(sys.executable))
    # rustup lives in the home folder.
    make = f"make() {{ HOME='{Path.home()}' command make -C '{ROOT}' \"$@\"; }}\n"
    for block in blocks:
        problems += place.run(block, make, written)
    shutil.rmtree(place.folder)
    took = monotonic() - begun
    times = [int(found) for found in re.findall(r"from GPU 0 to GPU 1: (\d+) ms, data right", "".join(written))]
    if len(times) != 2:
        problems.append(f"the program was to copy twice with data right; it took {times} ms")
    if not any("offers a direct path" in text for text in written):
        problems.append("nobody says that copies were staged though CUDA offers a direct path")
    shown = " ms, then ".join(map(str, times))
    return problems, f"{len(blocks)} steps in {took:.0f} s; the program took {shown} ms"


def is_target(name):
    """Whether the makefiles have such a target."""
    files = [ROOT / "Makefile", *ROOT.glob("*/*.mk")]
    return any(re.search(rf"^(\.PHONY:.* )?{re.escape(name)}( .*)?:|^\.PHONY:.*\b{re.escape(name)}\b", file.read_text(), re.M)
               for file in files)


def marked():
    found, problems = all_blocks()
    left_out = [block for blocks in found.values() for block in blocks if block.mark]
    for block in left_out:
        if block.mark == "ci":
            targets = re.findall(r"^(?:\$ )?make ([\w-]+)", "\n".join(block.lines), re.M)
            problems += [f"{block}: make has no target {name}" for name in targets if not is_target(name)]
    by_mark = [(mark, [str(block) for block in left_out if block.mark == mark]) for mark in REASONS if mark not in RUN_HERE]
    words = [f"{mark} ({', '.join(blocks)})" for mark, blocks in by_mark if blocks]
    return problems, "commands of documents, by what they need: " + "; ".join(words)


def without_code(text):
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "`", text)


def anchors(file):
    """The names of headings in links, as GitHub and others make them."""
    found = {}
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^( *)```.*?^\1```$", "", file.read_text(), flags=re.M | re.S), re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    return {f"{name}-{number}" if number else name for name, count in found.items() for number in range(count + 1)}


def kept_by_git(*patterns):
    """The files that git knows or would add. None where git knows nothing."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT, capture_output=True, text=True)
    files = [ROOT / name for name in listed.stdout.splitlines()] if listed.returncode == 0 else None
    return files and [file for file in files if file.is_file()]


def unknown_pages(text, pages):
    """Pages by their names, such as USAGE.md or docs/USAGE.md, that are not there. `pages` are paths below the root."""
    names = {Path(page).name for page in pages}
    found = re.findall(r"(?<![\w*])((?:docs/(?:\w+/)*)?)([A-Z][A-Z_]+\.md)\b", text)
    return sorted({folder + name for folder, name in found if (folder + name not in pages if folder else name not in names)})


def links():
    all_files = kept_by_git()
    files = [file for file in all_files if file.suffix == ".md"] if all_files else documents()
    problems, external, count = [], set(), 0
    # Messages, help, schemas and comments name pages too.
    pages = {str(file.relative_to(ROOT)) for file in files}
    for file in all_files or ():
        names = unknown_pages(file.read_text(errors="replace"), pages)
        problems += [f"{file.relative_to(ROOT)}: {name}: there is no such page" for name in names]
    for file in files:
        for link in re.findall(r"\]\(([^)\s]+)\)", without_code(file.read_text())):
            if re.match(r"https?://", link):
                external.add(link)
                continue
            count += 1
            path, _, anchor = link.partition("#")
            target = (file.parent / path).resolve() if path else file
            if not target.exists():
                problems.append(f"{file.relative_to(ROOT)}: {link}: there is no such file")
            elif anchor and anchor not in anchors(target):
                problems.append(f"{file.relative_to(ROOT)}: {link}: {target.name} has no such heading")
    return problems, f"{count} links lead somewhere; {len(external)} lead out and were not tried: {' '.join(sorted(external))}"


WRONG_DOCUMENT = """\
# A document

    make build

```text
$ commands here
```

<!-- needs: luck -->
```sh
true
```

```console
what it says
```

```sh
false
```

```console
$ echo 1 copy took 5.1 ms at 0x7f00; echo two
1 copy took 17 ms at 0x1234
two
$ echo one; echo two
one
$ echo 2 copies
1 copy
$ printf 'a\\nb\\nc\\n'
a
…
```

```sh
true
"""


def itself():
    """Each mistake of a document must be seen, and what may differ must not."""
    problems = []
    file = ROOT / "target" / f"wrong-document-{os.getpid()}.md"
    file.write_text(WRONG_DOCUMENT)
    blocks = blocks_of(file, problems)
    file.unlink()
    said = [problem.partition(": ")[2] for problem in problems]
    missing = [word for word in ("an indented block", "commands in a block that is not", "`luck` is no reason", "a `console` block begins",
                                 "the block has no end") if not any(word in one for one in said)]
    place = Place(ROOT / "target/built", None, Path(sys.executable))
    found = [problem for block in blocks[3:] for problem in place.run(block)]
    shutil.rmtree(place.folder)
    for word in ("`false` ends with", "`echo one; echo two` writes something else", "`echo 2 copies` writes something else"):
        if not any(word in one for one in found):
            missing.append(word)
    for word in ("echo 1 copy", "printf"):
        if any(f"`{word}" in one for one in found):
            missing.append(f"{word} is right")
    named = "see {0}.md, docs/{0}.md, docs/{1}.md, docs/USAGE.md, {1}.md and FILE.json".format("GONE", "MOVED")
    if unknown_pages(named, {"docs/USAGE.md", "docs/dev/{}.md".format("MOVED")}) != [name.format("GONE", "MOVED") for name in
                                                                                    ("{0}.md", "docs/{0}.md", "docs/{1}.md")]:
        missing.append("a page that is gone, or moved")
    return [f"not seen: {word}" for word in missing], f"{len(said) + len(found)} mistakes were seen"


def main():
    checks = {"run": run, "gpu": gpu, "mpi": mpi, "marked": marked, "links": links, "walk": walk, "itself": itself}
    if len(sys.argv) < 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    problems, told = checks[sys.argv[1]]()
    print("\n".join(problems) if problems else told)
    sys.exit(1 if problems else 0)


main()
