import json
from pathlib import Path

import jsonschema
import pytest

from matrix.spec.document import parse, plain
from matrix.spec.json_schema import json_schema, text
from matrix.spec.load import read
from matrix.spec.model import JobSpec, MatrixSpec, Settings

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(ROOT.glob("examples/*/matrix.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def test_the_schema_in_docs_is_current():
    assert (ROOT / "docs" / "matrix.schema.json").read_text() == text(), "run: matrix schema > docs/matrix.schema.json"


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.parent.name)
def test_the_examples_are_right_by_the_schema_and_by_the_reader(path):
    assert read(path).jobs
    assert list(VALIDATOR.iter_errors(plain(parse(path.read_bytes()).data))) == []


def test_the_reference_example_shows_every_key():
    text = (ROOT / "examples" / "reference" / "matrix.yaml").read_text()
    shown = {key for model in (MatrixSpec, JobSpec, Settings) for key, f in model.model_fields.items()}
    aliases = {f.alias: key for key, f in Settings.model_fields.items() if f.alias}
    keys = {aliases.get(k, k) for k in json.loads(json.dumps(sorted(_keys(plain(parse(text.encode()).data)))))}
    assert shown - keys == {"pretend_cards"}


def _keys(value):
    if isinstance(value, dict):
        return set(value) | {k for v in value.values() for k in _keys(v)}
    return {k for v in value for k in _keys(v)} if isinstance(value, list) else set()


def job(body):
    return {"suites": {"s": {"jobs": {"j": body}}}}


@pytest.mark.parametrize(
    "body",
    [
        {"command": "x", "cards": "${{ n }}", "timeout": "${{ t }}", "parameters": {"n": [1], "t": ["5m"]}},
        {"command": ["x", 1, True], "env": {"A": 1.5, "B": "x"}},
        {"pytest": ["a", "b"], "paths": "src/**", "tags": "x", "needs": "y"},
        {"command": "x", "baseline": {"loss": "f.txt", "time": "5m", "memory": "20G"}},
        {"command": "x", "container": "image:1", "inputs": ["a"], "produces": ["out", {"path": "b", "name": "c"}]},
    ],
)
def test_short_forms_are_allowed(body):
    assert list(VALIDATOR.iter_errors(job(body))) == []


@pytest.mark.parametrize(
    "body",
    [
        {"comand": "x"},
        {"command": "x", "timeout": 300},
        {"command": "x", "timeout": "5 minutes"},
        {"command": "x", "cards": -1},
        {"command": "x", "allow_failure": True},
        {"command": "x", "memory": "lots"},
    ],
)
def test_an_editor_sees_common_mistakes(body):
    assert list(VALIDATOR.iter_errors(job(body)))
