#!/usr/bin/env python3
"""check.py FILE: whether a file is what readers of JUnit's XML want, for tests/it/gate.rs.

The strictest of them is the schema of Ant's task: each attribute that it requires is there, and elements come in its order.
Prints what is wrong.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

WHOLE, DECIMAL, ANY = r"\d+", r"\d+(\.\d+)?", r"\S(.*\S)?"
SUITE = {
    "name": ANY, "package": ANY, "hostname": ANY, "id": WHOLE, "tests": WHOLE, "failures": WHOLE, "errors": WHOLE, "time": DECIMAL,
    "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
}  # fmt: skip
CASE = {"name": ANY, "classname": ANY, "time": DECIMAL}
FAILURE = {"message": ANY, "type": ANY}
wrong = []


def check(element, attributes):
    if set(element.attrib) != set(attributes):
        wrong.append(f"{element.tag} has {sorted(element.attrib)}")
    wrong.extend(
        f"{element.tag}: {name} is {element.get(name)!r}"
        for name, form in attributes.items()
        if not re.fullmatch(form, element.get(name, ""), re.DOTALL)
    )


root = ElementTree.parse(sys.argv[1]).getroot()
if root.tag != "testsuites" or root.attrib or not len(root):
    wrong.append(f"{root.tag} is the root")
for suite in root:
    check(suite, SUITE)
    cases = suite.findall("testcase")
    if [part.tag for part in suite] != ["properties"] + ["testcase"] * len(cases) + ["system-out", "system-err"]:
        wrong.append("the parts of a suite have another order")
    failures = [failure for case in cases for failure in case]
    for case in cases:
        check(case, CASE)
    for failure in failures:
        check(failure, FAILURE)
        if failure.tag != "failure" or len(failure) or not failure.text:
            wrong.append(f"{failure.tag} is no failure")
    if (len(cases), len(failures), 0) != tuple(int(suite.get(name)) for name in ("tests", "failures", "errors")):
        wrong.append("the counts are others")
print(*wrong, sep="\n", end="")
sys.exit(1 if wrong else 0)
