import base64
import random
import string
import uuid

import pytest

from matrix.masking import mask, shown_line

ALNUM = string.ascii_letters + string.digits
HASH = "0123456789abcdef"


def word(r, n, letters=ALNUM):
    return "".join(r.choice(letters) for _ in range(n))


def password(r):
    return word(r, r.randint(8, 20), ALNUM + "!#%*-_.")


def credentials(r):
    """(secret, line) pairs: one of each kind, with values drawn by `r`."""
    b64 = ALNUM + "-_"
    p, key40 = password(r), word(r, 40, ALNUM + "+/")
    jwt = ".".join(
        base64.urlsafe_b64encode(('{"' + word(r, 30) + '":1}').encode()).decode().rstrip("=") for _ in range(3)
    )
    for token in (
        "ghp_" + word(r, 36), "ghs_" + word(r, 36), "gho_" + word(r, 36),
        "github_pat_" + word(r, 22) + "_" + word(r, 59),
        "glpat-" + word(r, 20, b64), "hf_" + word(r, 34), "AKIA" + word(r, 16, string.ascii_uppercase + string.digits),
        "AIza" + word(r, 35, b64), "LTAI" + word(r, 20), "xoxb-" + word(r, 12, string.digits) + "-" + word(r, 24),
        "sk-" + word(r, 48), "sk-ant-" + word(r, 40, b64), "sk_live_" + word(r, 24), "npm_" + word(r, 36),
        "pypi-AgEIcHlwaS5vcmc" + word(r, 60, b64), "nvapi-" + word(r, 40, b64), "dckr_pat_" + word(r, 27, b64), jwt,
        "SG." + word(r, 22, b64) + "." + word(r, 43, b64),
        "bce-v3/ALTAK-" + word(r, 21) + "/" + word(r, 40, HASH),
    ):  # fmt: skip
        yield token, r.choice(["{}", "using {} now", "TOKEN={}", "'{}',", "remote: {}", '"token": "{}"']).format(token)
    plain = word(r, r.randint(8, 20))
    yield plain, f"fatal: unable to access 'https://user:{plain}@git.example/r.git'"
    yield p, f"export DB_PASSWORD={p}"
    yield p, f'  "password": "{p}",' if any(c.isdigit() for c in p) else f"password={p}"
    yield key40, f"AWS_SECRET_ACCESS_KEY={key40}"
    yield key40, f"aws_secret_access_key = {key40}"
    yield key40, f"curl -H 'Authorization: Bearer {key40}' https://x.example"
    yield key40, f"authorization: token {key40}"
    t32 = word(r, 32)
    t32 = t32[:-1] + "7"
    yield t32, f"--api-key {t32}"
    yield t32, f"api_key: {t32}"
    yield t32, f"clientSecret = '{t32}'"
    yield t32, f"GET /v1?access_token={t32}&x=1"
    yield t32, f"https://x.blob.example/a?sv=2&sig={t32}"
    yield t32, f"WANDB_TOKEN={t32}"
    yield t32, f"https://{t32}@github.com/o/r.git"
    body = "\n".join(word(r, 64, ALNUM + "+/") for _ in range(4))
    yield body, f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"


def survivors(count):
    r = random.Random(7)
    pairs = []
    while len(pairs) < count:
        pairs += credentials(r)
    return [(secret, line, mask(line)) for secret, line in pairs[:count] if secret in mask(line)]


def test_no_credential_of_a_generated_corpus_survives():
    assert not survivors(400)[:5]


@pytest.mark.soak
def test_no_credential_of_2000_survives():
    assert not survivors(2000)[:5]


R = random.Random(3)
ORDINARY = [
    "a13fcde3f809a011edff0a22c809bd0a1403f46f", "sha256:" + word(R, 64, HASH), "md5=" + word(R, 32, HASH),
    str(uuid.UUID(int=R.getrandbits(128))), "GPU-8f6c1a2b-3d4e-5f60-7182-93a4b5c6d7e8",
    "/root/.cache/pip/wheels/ab/cd/0123456789abcdef0123", "tests/transformers/test_m.py::TestA::test_b[bf16-2]",
    "tokens: 4096", "num_tokens=131072", "pad_token: <pad>", "eos_token_id=151645", "bos_token='<|endoftext|>'",
    "tokenizer: PreTrainedTokenizerFast(name_or_path='x', vocab_size=32000)", "token = self.tokenizer.decode(ids)",
    "KeyError: 'token'", "password: authentication failed for user", "secret: not set", "secrets: inherit",
    "Cache restored from key: Linux-pip-9f86d081884c7d65", f"cache-key: linux-py311-{word(R, 32, HASH)}",
    "loss: 0.74668949842453002930 md5=9d82f1177a18c2810367a158003c281c", "rank 0: tcp://127.0.0.1:36677",
    "HFValidationError: Repo id must be in the form 'repo_name': '/workspace/checkpoints/qwen-sft'",
    "git clone git@github.com:o/r.git", "https://github.com/o/r/actions/runs/123/job/456", "password=None",
    "pip install x==1.2.3 --hash=sha256:" + "ab" * 32, "token=${{ secrets.GITHUB_TOKEN }}", "GITHUB_TOKEN=***",
    "token: $TOKEN", "token embedding shape [151936, 2048]", "time 12:30:45@host.example",
    "AssertionError: weight_idxs' length should be greater than 0", "api_key=os.environ['KEY']",
    "Run actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8", "special_tokens_map.json",
    "author: a.b@c.example",
]  # fmt: skip


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_log_text_is_left_alone(line):
    assert mask(line) == line


def test_the_word_before_a_secret_stays_readable():
    assert mask("export DB_PASSWORD=hunter2x") == "export DB_PASSWORD=***"
    assert mask("https://bob:pw12345@h.example/x") == "https://***@h.example/x"


def test_masking_is_stable():
    r = random.Random(11)
    for _, line in credentials(r):
        assert mask(mask(line)) == mask(line)


@pytest.mark.parametrize("piece", ["a-b_", "a:", "token=", "eyJ", "://", "secret_", "a@", "?sig="])
def test_no_text_makes_masking_slow(piece):
    # A pattern that backtracks takes minutes for this; the test's own time limit is the judge.
    assert mask(piece * 30_000)


def test_a_line_is_masked_before_it_is_cut():
    line = b"x" * 485 + b" ghp_" + b"a1B2" * 9 + b" rest\n"
    assert "ghp_" not in shown_line(line)
    assert len(shown_line(line)) <= 500


def test_a_key_of_which_only_the_end_is_shown_is_masked():
    text = "log\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----\nafter"
    assert mask(text) == "log\n*** -----END PRIVATE KEY-----\nafter"
