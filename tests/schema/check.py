#!/usr/bin/env python3
"""Checks what the command prints as JSON against docs/schema/, for tests/it/schema.rs.

    check.py NAME FILE...

NAME.schema.json has to describe each field, and FILEs, which the command printed, may have no field that it does not describe.
Together they have to have each object that it describes, but for those that may be missing. NAME is `workflow` for a file that has to be
as GitHub's schema of workflows says.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Objects that simulated GPUs do not have.
REAL_ONLY = {"Bridge"}


def validator():
    """The package of c-tests/schema.txt."""
    if subprocess.run([ROOT / "c-tests/fetch-wheels", "schema"]).returncode != 0:
        sys.exit(1)
    sys.path.insert(0, str(ROOT / "target/schema"))
    import fastjsonschema
    return fastjsonschema


def inner(part):
    """The parts of a schema's part, by name."""
    yield from part.get("properties", {}).items()
    if isinstance(part.get("items"), dict):
        yield "[]", part["items"]
    if isinstance(part.get("additionalProperties"), dict):
        yield "{}", part["additionalProperties"]
    for one in (*part.get("anyOf", ()), *part.get("allOf", ())):
        if one != {"type": "null"}:
            yield "", one


class Schema:
    def __init__(self, text):
        self.root = json.loads(text)
        self.undescribed, self.objects, self.seen = [], set(), set()
        self.look(self.root, "", True)
        for name, part in self.root["definitions"].items():
            self.look(part, name, True)

    def look(self, part, name, is_required):
        """Closes objects, notes those that there have to be, and what is not described."""
        if "properties" in part:
            part["additionalProperties"] = False
            if is_required:
                self.objects.add(name)
        for key, one in inner(part):
            here = f"{name}.{key}" if key else name
            if key not in ("", "[]", "{}") and "$ref" not in one and len(one.get("description", "")) < 4:
                self.undescribed.append(here)
            self.look(one, here, is_required and (key not in part.get("properties", {}) or key in part.get("required", ())))

    def walk(self, part, name, value):
        """Notes the objects that a value has."""
        if "$ref" in part:
            name = part["$ref"].rsplit("/", 1)[1]
            part = self.root["definitions"][name]
        if "properties" in part and isinstance(value, dict):
            self.seen.add(name)
        for key, one in inner(part):
            here = f"{name}.{key}" if key else name
            if key == "[]":
                for item in value if isinstance(value, list) else ():
                    self.walk(one, here, item)
            elif key == "{}":
                for item in value.values() if isinstance(value, dict) else ():
                    self.walk(one, here, item)
            elif key == "":
                self.walk(one, here, value)
            elif isinstance(value, dict) and key in value:
                self.walk(one, here, value[key])


def check_workflow(package, file):
    """The first thing in the file that GitHub would not take."""
    schema = json.loads((ROOT / "target/schema/check_jsonschema/builtin_schemas/vendor/github-workflows.json").read_text())
    try:
        package.compile(schema)(json.loads(pathlib.Path(file).read_text()))
    except package.JsonSchemaValueException as error:
        sys.exit(f"{file}: {error.message}, and not {error.value!r:.200}")


def main(name, *files):
    package = validator()
    if name == "workflow":
        for file in files:
            check_workflow(package, file)
        return
    schema = Schema((ROOT / "docs" / "schema" / f"{name}.schema.json").read_text())
    wrong = [f"{name}: {field} has no description" for field in schema.undescribed]
    validate = package.compile(schema.root)
    for file in files:
        value = json.loads(pathlib.Path(file).read_text())
        try:
            validate(value)
        except package.JsonSchemaValueException as error:
            wrong.append(f"{file}: {error.message}, and not {error.value!r:.200}")
        schema.walk(schema.root, "", value)
    wrong += [f"{name}: no file has a {part}" for part in sorted(schema.objects - schema.seen - REAL_ONLY)]
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


main(*sys.argv[1:])
