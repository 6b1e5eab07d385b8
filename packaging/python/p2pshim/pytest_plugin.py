"""For pytest: tests that fail if a copy is staged, a call fails, …

    @pytest.mark.p2pshim(no_staged=True)
    def test_pipeline():
        ...

A marked test runs in a process of its own, by ``p2pshim run --fail-on``, whatever pytest itself runs under: its copies are counted
alone, and what other tests have enabled does not help it. So its fixtures are set up in that process, those of a module or of the
session too. Each argument ``no_CONDITION`` is a condition of ``p2pshim run --fail-on``: ``True``, or the condition's value, as
``no_staged="10MB"`` or ``no_slow=20``. ``sim=2`` runs the test on two simulated GPUs, as ``--p2pshim-sim 2`` does with all that are marked.

The wheel brings the plugin. Elsewhere it is ``pytest -p p2pshim.pytest_plugin``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from typing import Any, List, Optional, Tuple

import pytest

import p2pshim

#: Where the process of a test writes its reports.
_REPORTS = "P2PRUN_PYTEST_REPORTS"


def pytest_addoption(parser: Any) -> None:
    parser.getgroup("p2pshim").addoption("--p2pshim-sim", metavar="N", help="run tests with the mark p2pshim on N simulated GPUs")


def pytest_configure(config: Any) -> None:
    config.addinivalue_line(
        "markers",
        "p2pshim(no_staged=True, …, sim=N): run the test in a process of its own under p2pshim; it fails if a copy is staged, …",
    )


def _arguments(item: Any, mark: Any) -> Tuple[List[str], List[str]]:
    """The conditions of a mark, and the options of `p2pshim run`."""
    conditions, options = [], ["--quiet"]
    sim = item.config.getoption("--p2pshim-sim")
    for name, value in mark.kwargs.items():
        if name == "sim":
            sim = value
        elif not name.startswith("no_"):
            raise pytest.UsageError(f"{item.nodeid}: the mark p2pshim takes no_staged, no_hazard, … and sim, not {name}")
        elif value is not False:
            condition = name[3:].replace("_", "-")
            conditions.append(condition if value is True else f"{condition}={value}")
    if mark.args or not conditions:
        raise pytest.UsageError(f"{item.nodeid}: the mark p2pshim needs a condition, such as no_staged=True")
    return conditions, options + (["--sim", str(sim)] if sim is not None else [])


def _pytest(item: Any) -> List[str]:
    """The pytest of this process, with that test alone."""
    config = item.config
    places = set(config.known_args_namespace.file_or_dir)
    kept = [argument for argument in map(str, config.invocation_params.args) if argument not in places]
    path = item.nodeid.split("::", 1)
    node = "::".join([str(item.path)] + path[1:])
    command = [sys.executable, "-m", "pytest", *kept, f"--rootdir={config.rootpath}"]
    if config.inipath is not None:
        command += ["-c", str(config.inipath)]
    if config.pluginmanager.hasplugin("xdist"):
        command += ["-n", "0"]
    return [*command, node]


def _run(item: Any, mark: Any) -> List[Any]:
    """Runs a test in its own process, and gives the reports that it has made there."""
    conditions, options = _arguments(item, mark)
    with tempfile.TemporaryDirectory(prefix="p2pshim-pytest-") as folder:
        told, judged = os.path.join(folder, "reports"), os.path.join(folder, "conditions.xml")
        options += ["--fail-on", ",".join(conditions), "--junit", judged]
        command = [str(p2pshim.command_path()), "run", *options, "--", *_pytest(item)]
        environment = {**os.environ, _REPORTS: told}
        child = subprocess.run(
            command, cwd=str(item.config.invocation_params.dir), env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        try:
            with open(told, encoding="utf-8") as lines:
                data = [json.loads(line) for line in lines]
        except FileNotFoundError:
            data = []
        broken = _broken(judged, conditions)
    if item.config.getoption("capture") == "no":
        sys.stdout.write(child.stdout)
        sys.stderr.write(child.stderr)
    reports = [item.config.hook.pytest_report_from_serializable(config=item.config, data=one) for one in data]
    for report in reports:
        # JSON has no tuples, and pytest takes no list for the place of a skip.
        if isinstance(report.longrepr, list):
            report.longrepr = tuple(report.longrepr)
    whole = reports and reports[-1].when == "teardown"
    # One that is skipped, or fails as expected, copies less than it would.
    if whole and any(report.outcome == "skipped" for report in reports):
        return reports
    call = next((report for report in reports if report.when == "call"), None)
    if not whole or broken is None:
        why = f"the process of the test ended with {child.returncode}:\n{child.stdout}{child.stderr}"
    elif broken and call is not None and call.outcome == "passed":
        why = "\n".join(broken)
    else:
        return reports
    if call is None:
        call = _report(item, "call")
        reports = [report for report in reports if report.when == "setup"] + [call]
    if not whole:
        reports.append(_report(item, "teardown"))
    call.outcome = "failed"
    call.longrepr = f"{call.longrepr}\n{why}" if call.longrepr else why
    return reports


def _broken(file: str, conditions: List[str]) -> Optional[List[str]]:
    """Why conditions are broken, whatever status the process ended with; None if that was not judged."""
    try:
        cases = {case.get("name"): case.find("failure") for case in xml.parse(file).iter("testcase")}
    except (FileNotFoundError, xml.ParseError):
        return None
    if any(condition not in cases for condition in conditions):
        return None
    failures = [(condition, cases[condition]) for condition in conditions]
    return [f"--fail-on {condition}: {failure.get('message')}" for condition, failure in failures if failure is not None]


def _report(item: Any, when: str) -> Any:
    """The report of a part of a test that has left none."""
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "passed", None, when)  # type: ignore[arg-type]


def pytest_collection_modifyitems(items: List[Any]) -> None:
    marked = [(item, item.get_closest_marker("p2pshim")) for item in items]
    for item, mark in marked:
        if mark is not None:
            _arguments(item, mark)
    if any(mark is not None for _, mark in marked):
        try:
            p2pshim.command_path()
        except FileNotFoundError as error:
            raise pytest.UsageError(f"the mark p2pshim needs the wheel of p2pshim, which brings the command: {error}") from None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: Any, nextitem: Any) -> Optional[bool]:
    mark = item.get_closest_marker("p2pshim")
    if mark is None or _REPORTS in os.environ:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _run(item, mark):
        item.ihook.pytest_runtest_logreport(report=report)
    # Earlier tests have set this up for this one, which did not use it.
    item.session._setupstate.teardown_exact(nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: Any) -> None:
    told = os.environ.get(_REPORTS)
    if told is not None and _config is not None:
        data = _config.hook.pytest_report_to_serializable(config=_config, report=report)
        with open(told, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(data) + "\n")


_config: Any = None


def pytest_sessionstart(session: Any) -> None:
    global _config
    _config = session.config
