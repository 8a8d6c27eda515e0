"""Compares runs with what was expected of each job: table.py EXPECTED.json RUN_FOLDER. Exit 1 where one differs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

expected = json.loads(Path(sys.argv[1]).read_text())
run = json.loads((Path(sys.argv[2]) / "run.json").read_text())
wrong = 0
print("| job | ended | category | line | as expected |")
print("| --- | --- | --- | --- | --- |")
for job in run["jobs"]:
    attempt = job["attempts"][-1] if job["attempts"] else {"causes": []}
    cause = attempt["causes"][0] if attempt["causes"] else {}
    got = [job["status"], *([cause["category"]] if cause else [])]
    fits = got == expected[job["name"]]
    wrong += not fits
    text = str(cause.get("text", ""))[:90].replace("|", "\\|")
    print(f"| {job['name']} | {job['status']} | {cause.get('category', '')} | {text} | {'yes' if fits else 'NO'} |")
print(f"\n{len(run['jobs']) - wrong} of {len(run['jobs'])} as expected")
sys.exit(wrong > 0)
