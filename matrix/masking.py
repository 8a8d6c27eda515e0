"""Masks credentials in text that strangers wrote and that we are about to publish.

GitHub masks only the exact values of registered secrets. Three kinds of evidence are used here: the shape of a token
(its issuer's prefix), its
place (an address, an Authorization header, a private key block) and the word before it together with how random it
looks. Hashes,
paths and UUIDs have no such word and no such shape, and stay.
"""

from __future__ import annotations

import math
import re
from collections import Counter

MASK = "***"

# Prefixes of issuers. Each stands at a word boundary and is long enough that no ordinary word fits.
_SHAPES = re.compile(
    r"""(?x)(?<![A-Za-z0-9])(?:
      gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,}       # GitHub
    | gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|imt)-[A-Za-z0-9_-]{16,}    # GitLab
    | hf_[A-Za-z0-9]{20,} | api_org_[A-Za-z0-9]{20,}                  # Hugging Face
    | (?:AKIA|ASIA|AGPA|AIDA|AROA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])  # AWS key ids
    | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{20,} | GOCSPX-[A-Za-z0-9_-]{20,}  # Google
    | LTAI[A-Za-z0-9]{12,30} | AKID[A-Za-z0-9]{24,40}                 # Alibaba, Tencent
    | ALTAK[A-Za-z0-9-]{16,} | bce-v3/ALTAK-[A-Za-z0-9]+/[A-Fa-f0-9]+ # Baidu
    | xox[abeoprs]-[A-Za-z0-9-]{10,} | xapp-[A-Za-z0-9-]{10,}         # Slack
    | sk-(?:ant-|proj-|svcacct-|or-)?[A-Za-z0-9_-]{20,} | sk_(?:live|test)_[A-Za-z0-9]{16,}
    | rk_(?:live|test)_[A-Za-z0-9]{16,}
    | whsec_[A-Za-z0-9]{20,} | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{40,} | dckr_pat_[A-Za-z0-9_-]{20,}
    | glsa_[A-Za-z0-9_]{20,} | dop_v1_[a-f0-9]{40,} | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
    | hvs\.[A-Za-z0-9_-]{20,}
    | nvapi-[A-Za-z0-9_-]{20,} | r8_[A-Za-z0-9]{30,} | ms-[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}
    | ey[IJ][A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]* # JSON web tokens
    )"""
)
_KEY_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----.*?(?:-----END \1-----|\Z)", re.DOTALL)
# An excerpt may begin inside of a key.
_KEY_TAIL = re.compile(
    r"(?:^[ \t]*[A-Za-z0-9+/=]{16,76}[ \t]*\n){0,80}^[ \t]*[A-Za-z0-9+/=]{1,76}[ \t]*\n"
    r"[ \t]*(-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)",
    re.MULTILINE,
)
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)[^\s/@:'\"<>]*(?::[^\s/@'\"<>]*)?@(?=[\w\[])")
_BARE_USERINFO = re.compile(r"(?<![\w/:.@-])([A-Za-z][\w.-]{0,40}):(?!//)([^\s:@/'\"]{6,100})@(?=[\w-]+(?:\.[\w-]+)+)")
_SCHEME = r"(?:bearer|basic|token|digest|apikey|negotiate)\s"
_AUTHORIZATION = re.compile(
    rf"(?i)\b((?:proxy-)?authorization['\"]?\s*[:=]\s*['\"]?(?:{_SCHEME}+)?)(?!{_SCHEME})[^\s'\",;]{{4,}}"
)
_BEARER = re.compile(r"(?i)\b(bearer\s+)(?=[^\s'\",;]*\d)[A-Za-z0-9._~+/=-]{16,}")
_COOKIE = re.compile(r"(?i)\b((?:set-)?cookie['\"]?\s*:\s*['\"]?)[^'\"\n]{4,}")
_QUERY = re.compile(
    r"(?i)([?&](?:sig|signature|x-amz-signature|x-amz-security-token|x-amz-credential|x-goog-signature|token|access_token|"
    r"api_?key|auth|password|passwd|secret|client_secret|ossaccesskeyid)=)[^&\s'\"<>#]{4,}"
)
# A word that announces a secret, joined to its value: `DB_PASSWORD=x`, `"apiKey": "x"`, `--token x`.
_STRONG = (
    r"passw(?:or)?d|passwd|pwd|passphrase|secret(?:[_-]?(?:access)?[_-]?key)?|client[_-]?secret|api[_-]?key|apikey|"
    r"access[_-]?key(?:[_-]?(?:id|secret))?|private[_-]?key|account[_-]?key|auth[_-]?key|encryption[_-]?key|signing[_-]?key|"
    r"auth[_-]?token|access[_-]?token|refresh[_-]?token|bearer[_-]?token|session[_-]?token|credentials?"
)
_ASSIGNED = re.compile(
    rf"(?i)((?<![A-Za-z0-9])(?:(?P<strong>{_STRONG})|(?P<weak>token|tok|sk|ak))"
    r"['\"]?(?P<sep>\s*(?::=|=>|=|:)\s*|\s+(?=['\"]?\S*\d))(?P<quote>['\"]?))(?P<value>[^\s'\",;&]{4,})"
)
_CAMEL = re.compile(
    r"(\b[a-z][A-Za-z0-9]*(?:Password|Secret|ApiKey|AccessKey|Token|PrivateKey)['\"]?\s*[:=]\s*['\"]?)([^\s'\",;&]{4,})"
)
_PLAIN = re.compile(
    r"(?i)none|null|true|false|undefined|unset|empty|redacted|masked|hidden|required|missing|\W*\*+\W*|x{3,}|\.{3,}"
)
_NOT_A_VALUE = re.compile(r"[$<{(\[]|%[sdr(]|%\w+%|/[\w.-]+/|\./|~/|[A-Za-z_][\w.]*[(\[]|[A-Za-z]:\\|https?://")


def entropy(text: str) -> float:
    """Shannon entropy in bits a character."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values()) if text else 0.0


def _random_looking(value: str) -> bool:
    """Long, of mixed kinds and without order: a token, not a word or a number."""
    kinds = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return len(value) >= 16 and kinds >= 2 and bool(re.search("[0-9]", value)) and entropy(value) >= 3.0


def _is_secret(value: str, *, strong: bool, sep: str) -> bool:
    if _PLAIN.fullmatch(value) or _NOT_A_VALUE.match(value):
        return False
    if not strong:
        return _random_looking(value)
    if "=" in sep:
        return True
    # After a colon or a space prose goes on ("password: authentication failed"): a secret is no plain word.
    return (bool(re.search(r"[0-9]|[^A-Za-z0-9_.:)-]", value)) and len(value) >= 6) or _random_looking(value)


def _mask_assigned(found: re.Match[str]) -> str:
    secret = _is_secret(found["value"], strong=bool(found["strong"]), sep=found["sep"])
    return found[1] + (MASK if secret else found["value"])


def shown_line(raw: bytes, most: int = 500) -> str:
    """Return the beginning of a log's line, masked first: a cut takes a credential's shape away."""
    return mask(raw[: 8 * most].decode("utf-8", "replace").rstrip("\n"))[:most]


def mask(text: str) -> str:
    """Return the text with every credential that was recognised replaced by `***`."""
    text = _KEY_BLOCK.sub(rf"-----BEGIN \1----- {MASK}", text)
    if "-----END " in text:  # the search looks eighty lines ahead from each
        text = _KEY_TAIL.sub(rf"{MASK} \1", text)
    text = _USERINFO.sub(rf"\1{MASK}@", text)
    text = _BARE_USERINFO.sub(rf"\1:{MASK}@", text)
    text = _AUTHORIZATION.sub(rf"\1{MASK}", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    text = _COOKIE.sub(rf"\1{MASK}", text)
    text = _SHAPES.sub(MASK, text)
    text = _QUERY.sub(rf"\1{MASK}", text)
    text = _CAMEL.sub(lambda m: m[1] + (MASK if _is_secret(m[2], strong="oken" not in m[1], sep="=") else m[2]), text)
    return _ASSIGNED.sub(_mask_assigned, text)
