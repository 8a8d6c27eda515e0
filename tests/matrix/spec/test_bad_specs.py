"""Every mistake in a matrix file is told with its line, its path and what to write instead."""

import textwrap

import pytest

from matrix.plan.hosts import Card, Host
from matrix.spec.document import MAX_BYTES
from matrix.spec.load import read_bytes
from matrix.spec.problems import SpecError

HOSTS = [Host("gpu-1", tuple(Card(str(i), "H20") for i in range(8))), Host("gpu-2", (Card("0", "A100"),))]


def job(body: str) -> str:
    """A matrix with one job, whose settings begin on line 4."""
    return "suites:\n  s:\n    jobs:\n      j:\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)


def jobs(body: str) -> str:
    """A matrix with some jobs, the first on line 4."""
    return "suites:\n  s:\n    jobs:\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 6)


CASES = {
    "empty file": ("", 1, "", "is empty: write suites with jobs"),
    "only a comment": ("# nothing\n", 1, "", "is empty"),
    "a list at the top": ("- a\n", 1, "", "must be a mapping with 'suites'"),
    "no suites": ("version: 1\n", 1, "", "'suites' is missing"),
    "suites empty": ("suites: {}\n", 1, "suites", "must not be empty"),
    "suites a list": ("suites:\n  - name: a\n", 1, "suites", "must be a mapping ('key: value'), not a list"),
    "suite without jobs": ("suites:\n  s: {}\n", 2, "suites.s", "'jobs' is missing"),
    "jobs empty": ("suites:\n  s:\n    jobs: {}\n", 3, "suites.s.jobs", "must not be empty"),
    "job is nothing": ("suites:\n  s:\n    jobs:\n      j:\n", 4, "suites.s.jobs.j", "'command' or 'pytest'"),
    "wrong version": (f"version: 2\n{job('command: x')}", 1, "version", "must be at most 1, not 2"),
    "pretended cards in words": (f"pretend_cards: four\n{job('command: x')}", 1, "pretend_cards", "bad cards 'four'"),
    "unknown key at the top": (f"suits: {{}}\n{job('command: x')}", 1, "suits", "did you mean 'suites'?"),
    "misspelt key": (job("comand: x"), 5, "suites.s.jobs.j.comand", "did you mean 'command'?"),
    "key of another system": (job("command: x\ngpus: 2"), 6, "suites.s.jobs.j.gpus", "write 'cards'"),
    "run instead of command": (job("run: x"), 5, "suites.s.jobs.j.run", "write 'command'"),
    "depends_on": (job("command: x\ndepends_on: y"), 6, "suites.s.jobs.j.depends_on", "write 'needs'"),
    "working-directory": (job("command: x\nworking-directory: y"), 6, "working-directory", "write 'cwd'"),
    "misspelt inner key": (
        job("command: x\ncards: {cuont: 2}"),
        6,
        "suites.s.jobs.j.cards.cuont",
        "did you mean 'count'?",
    ),
    "misspelt key in defaults": (f"defaults: {{timeuot: 5m}}\n{job('command: x')}", 1, "defaults.timeuot", "'timeout'"),
    "bad duration": (job("command: x\ntimeout: 5 minutes"), 6, "timeout", "bad duration '5 minutes': write a number"),
    "duration without unit": (job("command: x\ntimeout: 300"), 6, "timeout", "bad duration '300'"),
    "duration in the wrong order": (job("command: x\ntimeout: 5m1h"), 6, "timeout", "from large to small"),
    "duration of nothing": (job("command: x\ntimeout: 0s"), 6, "timeout", "longer than nothing"),
    "bad duration in defaults of a suite": (
        "suites:\n  s:\n    defaults:\n      expect: soon\n    jobs:\n      j: {command: x}\n",
        4,
        "suites.s.defaults.expect",
        "bad duration 'soon'",
    ),
    "bad size": (job("command: x\nmemory: lots"), 6, "memory", "bad size 'lots'"),
    "size without unit": (job("command: x\nmemory: 32"), 6, "memory", "bad size '32': write a number with its unit"),
    "negative cards": (job("command: x\ncards: -1"), 6, "cards", "must be at least 0, not -1"),
    "half a card": (job("command: x\ncards: 0.5"), 6, "cards", "must be a whole number, not 0.5"),
    "cards in words": (job("command: x\ncards: two"), 6, "cards", "must be a whole number, not 'two'"),
    "more cards than any host": (
        job("command: x\ncards: 16"),
        6,
        "cards",
        "asks for 16 cards, and no host has more than 8",
    ),
    "more cards of a model": (
        job("command: x\ncards: {count: 2, model: A100}"),
        6,
        "cards.count",
        "2 cards of model A100, and no host has more than 1",
    ),
    "unknown card": (job("command: x\ncards: {model: H200}"), 6, "cards.model", "there are A100, H20"),
    "not true or false": (job("command: x\ncards: {exclusive: maybe}"), 6, "cards.exclusive", "true or false"),
    "nothing to run": (job("cards: 1"), 4, "suites.s.jobs.j", "nothing to run: write 'command' or 'pytest'"),
    "two things to run": (job("command: x\npytest: y"), 4, "suites.s.jobs.j", "both 'command' and 'pytest'"),
    "empty command": (job("command: ' '"), 5, "command", "must not be empty: write a command"),
    "empty argument list": (job("command: []"), 5, "command", "must not be empty"),
    "no pytest target": (job("pytest: {args: [-q]}"), 5, "pytest", "'targets' is missing"),
    "shards without pytest": (job("command: x\nshards: 2"), 4, "suites.s.jobs.j", "'shards' cuts a test suite"),
    "no shards": (job("pytest: x\nshards: 0"), 6, "shards", "must be at least 1"),
    "shards that produce": (job("pytest: x\nshards: 2\nproduces: out"), 4, "suites.s.jobs.j", "cannot produce"),
    "tests expected of a command": (job("command: x\nexpects: {tests: 3}"), 4, "suites.s.jobs.j", "needs 'pytest'"),
    "expect beyond the timeout": (job("command: x\nexpect: 2h"), 4, "suites.s.jobs.j", "longer than 'timeout'"),
    "duplicate key": (job("command: x\ncommand: y"), 6, "suites.s.jobs.j.command", "is already on line 5"),
    "duplicate job in a suite": (jobs("a: {command: x}\na: {command: x}"), 5, "suites.s.jobs.a", "already on line 4"),
    "duplicate job in two suites": (
        "suites:\n  s: {jobs: {a: {command: x}}}\n  t: {jobs: {a: {command: x}}}\n",
        3,
        "suites.t.jobs.a",
        "is already on line 2",
    ),
    "names that differ in case only": (
        jobs("a: {command: x}\nA: {command: x}"),
        5,
        "suites.s.jobs.A",
        "already on line 4",
    ),
    "job name with a slash": (jobs("a/b: {command: x}"), 4, 'suites.s.jobs."a/b"', "bad name of a job"),
    "needs of nobody": (
        jobs("a: {command: x, produces: out}\nb: {command: x, needs: ab}"),
        5,
        "suites.s.jobs.b.needs",
        "nobody produces 'ab'",
    ),
    "needs misspelt": (
        jobs("pretrain: {command: x, produces: o}\nb: {command: x, needs: [pretrian]}"),
        5,
        "needs[0]",
        "did you mean 'pretrain'?",
    ),
    "needs a job instead of its hand-off": (
        jobs("a: {command: x, produces: {name: ckpt, path: o}}\nb: {command: x, needs: a}"),
        5,
        "needs",
        "the job 'a' produces 'ckpt'",
    ),
    "needs a job that produces nothing": (
        jobs("a: {command: x}\nb: {command: x, needs: a}"),
        5,
        "needs",
        "add 'produces' to the job 'a'",
    ),
    "needs one of many": (
        jobs(
            "a: {command: 'x ${{ tp }}', parameters: {tp: [1, 2]}, produces: 'o${{ tp }}'}\nb: {command: x, needs: a}"
        ),
        5,
        "needs",
        "write one of a@tp=1, a@tp=2",
    ),
    "cycle": (
        jobs("""
        a: {command: x, produces: a, needs: c}
        b: {command: x, produces: b, needs: a}
        c: {command: x, produces: c, needs: b}
        """),
        4,
        "suites.s.jobs.a.needs",
        "a circle of needs: a -> c -> b -> a",
    ),
    "needs itself": (jobs("a: {command: x, produces: a, needs: a}"), 4, "suites.s.jobs.a.needs", "a -> a"),
    "hand-off twice": (
        jobs("a: {command: x, produces: {name: n, path: p}}\nb: {command: x, produces: {name: n, path: q}}"),
        5,
        "suites.s.jobs.b.produces",
        "'n' is produced by 'a' too",
    ),
    "two writers of one folder": (
        jobs("a: {command: x, produces: out/p}\nb: {command: x, produces: ./out/p/}"),
        5,
        "suites.s.jobs.b.produces",
        "writes 'out/p' as 'a' does",
    ),
    "bad kind": (job("command: x\nproduces: {path: o, kind: model}"), 6, "kind", "must be 'checkpoint' or 'files'"),
    "bad date": (job("command: x\nallow_failure: {reason: r, until: 2026-02-30}"), 6, "until", "bad date '2026-02-30'"),
    "date in words": (job("command: x\nallow_failure: {reason: r, until: soon}"), 6, "until", "as YYYY-MM-DD"),
    "allowed without a date": (job("command: x\nallow_failure: {reason: r}"), 6, "allow_failure", "'until' is missing"),
    "allowed without a reason": (
        job("command: x\nallow_failure: {reason: '', until: 2027-01-01}"),
        6,
        "reason",
        "must not be empty",
    ),
    "allowed by a flag": (job("command: x\nallow_failure: true"), 6, "allow_failure", "must be a mapping"),
    "glob not closed": (job("command: x\npaths: ['src/[ab']"), 6, "paths", "bad glob 'src/[ab': '[' is not closed"),
    "glob outside": (job("command: x\npaths: ['../x']"), 6, "paths", "stays inside"),
    "glob of two stars": (job("command: x\npaths: ['src/**.py']"), 6, "paths", "'**' stands alone"),
    "empty glob": (job("command: x\npaths: ['/']"), 6, "paths", "it matches nothing"),
    "unknown parameter": (
        job("command: 'x ${{ pt }}'\nparameters: {tp: [1]}"),
        5,
        "command",
        "unknown parameter 'pt' in ${{ }}: did you mean 'tp'?",
    ),
    "parameter without values": (job("command: x\nparameters: {tp: []}"), 6, "parameters.tp", "has no values"),
    "parameter value twice": (job("command: x\nparameters: {tp: [1, 1]}"), 6, "parameters.tp[1]", "'1' stands twice"),
    "exclude fits nothing": (
        job("command: x\nparameters: {tp: [1, 2]}\nexclude: [{tp: 3}]"),
        7,
        "exclude[0]",
        "fits no combination",
    ),
    "exclude leaves nothing": (
        job("command: x\nparameters: {tp: [1]}\nexclude: [{tp: 1}]"),
        7,
        "exclude",
        "leaves no combination",
    ),
    "include lacks a parameter": (
        job("command: x\nparameters: {tp: [1], pp: [1]}\ninclude: [{tp: 3}]"),
        7,
        "include[0]",
        "lacks pp",
    ),
    "include is there already": (
        job("command: x\nparameters: {tp: [1]}\ninclude: [{tp: 1}]"),
        7,
        "include[0]",
        "is there already",
    ),
    "exclude without parameters": (job("command: x\nexclude: [{tp: 3}]"), 6, "exclude", "without 'parameters'"),
    "unknown parameter in exclude": (
        job("command: x\nparameters: {tp: [1]}\nexclude: [{tpp: 1}]"),
        7,
        "exclude[0].tpp",
        "did you mean 'tp'?",
    ),
    "too many combinations": (
        job(f"command: x\nparameters: {{a: {list(range(40))}, b: {list(range(40))}}}"),
        6,
        "parameters",
        "more than 1,000 combinations",
    ),
    "bad value from a parameter": (
        job("command: x\ncards: ${{ n }}\nparameters: {n: [1, two]}"),
        6,
        "cards",
        "whole number, not 'two'",
    ),
    "bad companion": (job("command: x\nwith: PaddlePaddle/PaddleFleet"), 6, "with", "write REPO@REF"),
    "bad mount": (job("command: x\ncontainer: {image: i, mounts: [data]}"), 6, "mounts", "bad mount 'data'"),
    "container without image": (job("command: x\ncontainer: {shm: 1G}"), 6, "container", "'image' is missing"),
    "cwd outside": (job("command: x\ncwd: ../other"), 6, "cwd", "leaves the repository"),
    "variable of the runner": (job("command: x\nenv: {CUDA_VISIBLE_DEVICES: 0}"), 6, "env", "is set by the runner"),
    "bad variable": (job("command: x\nenv: {A-B: 0}"), 6, "env", "bad name of a variable 'A-B'"),
    "env a list": (job("command: x\nenv: [A=1]"), 6, "env", "must be a mapping"),
    "bad hub repository": (job("command: x\ninputs: {hub: ['https://x.y/z']}"), 6, "inputs.hub", "OWNER/NAME"),
    "override never read": (
        job("command: python train.py\noverrides: {conf/a.yaml: {lr: 1}}"),
        6,
        "overrides",
        "the command never names 'conf/a.yaml'",
    ),
    "override of a script": (
        job("command: x a.sh\noverrides: {a.sh: {lr: 1}}"),
        6,
        "overrides",
        "neither YAML nor JSON",
    ),
    "too many retries": (job("command: x\nretries: 99"), 6, "retries", "must be at most 10, not 99"),
    "negative tolerance": (job("command: x\nbaseline: {loss: {file: f, rtol: -1}}"), 6, "rtol", "must be at least 0"),
    "bad tag": (job("command: x\ntags: ['a b']"), 6, "tags", "bad name 'a b'"),
    "tab": ("suites:\n\ts:\n", 2, "", "a tab: indent with spaces"),
    "quote not closed": (job("command: 'x"), 5, "", "not YAML"),
    "bracket not closed": (job("command: [x\ncards: 1"), 6, "", "not YAML"),
    "colon in plain text": (job("command: echo a: b"), 5, "", "put the value in quotes"),
    "bad indent": ("suites:\n  s:\n    jobs:\n   j: 1\n", 4, "", "not YAML"),
    "two documents": (job("command: x") + "\n---\na: 1\n", 6, "", "a matrix is one document"),
    "unknown alias": (job("command: *x"), 5, "", "no anchor of this name"),
    "anchor in itself": (job("command: &a [*a]"), 5, "command", "contains itself"),
    "python object": (job("command: !!python/object/apply:os.system [x]"), 5, "command", "is not allowed"),
    "own tag": (job("command: !secret x"), 5, "command", "tag !secret is not allowed"),
    "merge of text": (job("<<: x\ncommand: x"), 5, "", "'<<' takes a mapping"),
    "list as key": (job("command: x\n? [a]\n: b"), 6, "", "a key must be a word"),
    "control character": (job("command: 'x\x01'"), 5, "", "control character"),
}


@pytest.mark.parametrize(("text", "line", "path", "message"), CASES.values(), ids=CASES.keys())
def test_a_mistake_is_told_with_line_path_and_remedy(text, line, path, message):
    with pytest.raises(SpecError) as caught:
        read_bytes(text.encode(), hosts=HOSTS)
    problems = caught.value.problems
    found = [p for p in problems if message in p.message]
    assert found, [p.text("matrix.yaml") for p in problems]
    assert found[0].line == line
    assert path in found[0].path
    assert len(problems) == 1, "one mistake is told once, and blamed on nothing else"
    assert caught.value.exit_code == 2
    assert f"matrix.yaml:{line}: " in caught.value.message


RAW = {
    "latin-1": (b"a: 1\nb: caf\xe9\n", 2, "byte 0xe9 is not UTF-8"),
    "utf-16": ("a: 1\n".encode("utf-16"), 1, "is UTF-16: save it as UTF-8"),
    "too long": (b"# " + b"x" * MAX_BYTES, 0, "a matrix may have"),
    "too deep": (b"a: " + b"[" * 100_000, 1, "more than 40 levels deep"),
    "too many values": (b"a: [" + b"1," * 300_000 + b"]", 1, "more than 100,000 values"),
}


@pytest.mark.parametrize(("raw", "line", "message"), RAW.values(), ids=RAW.keys())
def test_hostile_bytes_are_refused(raw, line, message):
    with pytest.raises(SpecError) as caught:
        read_bytes(raw)
    assert [p.line for p in caught.value.problems] == [line]
    assert message in caught.value.message


def test_a_bomb_of_aliases_is_refused_before_it_fills_memory():
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(SpecError, match="aliases make more than 100,000 values"):
        read_bytes("\n".join(lines).encode())


BOMBS = {
    "merges of one large anchor": "b: &b {"
    + ",".join(f"k{i}: 1" for i in range(9000))
    + "}\n"
    + "\n".join(f"m{i}: {{<<: [{','.join(['*b'] * 39)}]}}" for i in range(4000)),
    "large defaults of many jobs": "defaults: {env: {"
    + ",".join(f"K{i}: 1" for i in range(20000))
    + "}}\nsuites: {s: {jobs: {"
    + ",".join(f"j{i}: {{command: x}}" for i in range(5000))
    + "}}}",
    "a large job of many combinations": "suites: {s: {jobs: {j: {command: ["
    + ",".join(["'${{ a }}'"] * 20000)
    + f"], parameters: {{a: {list(range(900))}}}}}}}}}}}",
    "a long text of many combinations": "suites: {s: {jobs: {j: {command: '"
    + "${{ a }} " * 50000
    + f"', parameters: {{a: {list(range(900))}}}}}}}}}}}",
    "many unknown keys over many defaults": "defaults: {"
    + ",".join(f"k{i}: 1" for i in range(20000))
    + "}\nsuites: {s: {jobs: {j: {"
    + ",".join(f"k{i}: 1" for i in range(20000))
    + "}}}}",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS.keys())
def test_a_small_file_that_means_much_work_is_refused(text):
    with pytest.raises(SpecError):
        read_bytes(text.encode())


def test_a_bomb_of_merges_is_refused():
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i}\n  <<: [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(SpecError):
        read_bytes("\n".join(lines).encode())


def test_all_mistakes_are_told_in_one_go_in_the_order_of_the_file():
    text = """\
defaults:
  timeout: 300
suites:
  a:
    jobs:
      x: {comand: hi, cards: -1, gpus: 3}
      y: {command: hi, needs: z, produces: out}
      v: {command: hi, needs: x}
      w: {command: hi, produces: out}
"""
    with pytest.raises(SpecError) as caught:
        read_bytes(text.encode())
    assert [(p.line, p.path.rsplit(".", 1)[-1]) for p in caught.value.problems] == [
        (2, "timeout"),
        (6, "cards"),
        (6, "comand"),
        (6, "gpus"),
        (7, "needs"),
        (9, "produces"),
    ]
    assert caught.value.message.splitlines()[0] == "matrix.yaml: 6 mistakes; nothing was run"


def test_a_mistake_in_defaults_is_told_once_for_many_jobs():
    text = "defaults: {cards: 99}\nsuites: {s: {jobs: {a: {command: x}, b: {command: x}}}}\n"
    with pytest.raises(SpecError) as caught:
        read_bytes(text.encode(), hosts=HOSTS)
    assert [p.path for p in caught.value.problems] == ["defaults.cards"]


def test_thousands_of_mistakes_make_a_short_message():
    body = "\n".join(f"      j{i}: {{comand: x}}" for i in range(2000))
    with pytest.raises(SpecError) as caught:
        read_bytes(f"suites:\n  s:\n    jobs:\n{body}\n".encode())
    lines = caught.value.message.splitlines()
    assert len(lines) < 60
    assert lines[-1].strip().startswith("... and ")
