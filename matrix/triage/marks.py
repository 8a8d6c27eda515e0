"""Structural marks: what makes a line worth reading whatever the rules say. Written for the scanner: bytes, no look-around."""

from __future__ import annotations

from typing import NamedTuple


class Mark(NamedTuple):
    """A kind of line that the scan looks for, with how many lines around it are kept of a log too large to keep whole."""

    name: str
    regex: str
    before: int = 3
    after: int = 3
    ignore_case: bool = False


MARKS: tuple[Mark, ...] = (
    Mark("traceback", r"Traceback \((?:most recent call last|innermost last)\)", 8, 250),
    Mark("chain", r"(?:During handling of the above exception|The above exception was the direct cause)"),
    Mark(
        "exception",
        r"[A-Za-z_](?:Error|Exception|Interrupt|Failure|Exit|Timeout|Fault|Expired|Refused|NotFound)(?::|\s*\n)",
        12,
        30,
    ),
    Mark("exception_group", r"\+ Exception Group Traceback", 8, 250),
    Mark(
        "fault",
        r"(?:Fatal Python error: |\*\*\* Aborted at |Sanitizer: |Sanitizer:|stack smashing|terminate called|C\+\+ Traceback|Error Message Summary|FatalError: )",
        6,
        60,
    ),
    Mark("section", r"={3,} ?[^\n=][^\n]{0,160}={3,}", 2, 4),
    Mark("block", r"_{3,} [^\n]{1,200} _{3,}", 1, 60),
    Mark("test_e", r"[ \n]E   [^\n]", 8, 4),
    Mark("test_word", r"(?:FAILED|ERROR|FAIL|RERUN|XPASS)[ (]?", 2, 6),
    Mark(
        "test_crash",
        r"(?:\+\+ Timeout \+\+|crashed while running|node down: |replacing crashed worker|INTERNALERROR>)",
        4,
        6,
    ),
    Mark(
        "test_count",
        r"(?:[0-9]+ (?:passed|failed|errors?|skipped|deselected|xfailed)[ ,]|no tests ran|Ran [0-9]+ tests? in|test result: )",
        2,
        2,
    ),
    Mark(
        "ci",
        r"(?:##\[(?:error|group|endgroup|section|command)\]|::(?:error|group|endgroup)|section_(?:start|end):[0-9]+:|\[Pipeline\] )",
        6,
        2,
    ),
    Mark(
        "ci_end",
        r"(?:Finished: [A-Z]+|Job (?:succeeded|failed)|Post job cleanup|Cleaning up orphan|Complete job name|Build was (?:aborted|cancelled))",
        12,
        3,
    ),
    Mark(
        "ci_word",
        r"(?:the (?:operation|job|run|runner|action|self-hosted runner)[^\n]{0,100}(?:cancell?ed|timed out|exceeded|lost communication|shutdown signal)|build (?:timed out|failed|succeeded))",
        8,
        3,
        True,
    ),
    Mark(
        "exit",
        r"(?:exit(?:ed|s|ing)?(?: with)?(?: non-zero)?(?: (?:exit )?(?:code|status|value)| )?:? ?[\(=']?-?[0-9]{1,3}|return(?:ed|s)?(?: with)?(?: non-zero)?(?: (?:code|status|value|exit))+:? ?-?[0-9]|exitcode|rc=[0-9]|status [1-9][0-9]{0,2}\b)",
        20,
        3,
        True,
    ),
    Mark(
        "signal",
        r"(?:SIG(?:KILL|SEGV|ABRT|BUS|TERM|ILL|FPE|HUP|INT|TRAP|PIPE|XCPU)|Segmentation fault|segmentation fault|core dumped|Killed|Aborted|Bus error|Illegal instruction|Floating point exception|Terminated)",
        20,
        6,
    ),
    Mark(
        "tool",
        r"(?:error|fatal|panic|failure|abort|failed|err!|cannot|can't|could ?n[o']t|unable to|not found|no such|denied|refused|undefined|unrecognized|unknown|invalid|missing|mismatch|timed ?out|unexpected|exceeded|nonzero|non-zero|unsatisfied|conflict|violat|killed|crash|exception)",
        3,
        4,
        True,
    ),
    Mark("cross", "(?:\u2717|\u2718|\u274c|\u00d7 |\u2716|\U0001f6a8|\u25cf )", 3, 8),
    Mark(
        "lint",
        r"(?:[A-Z]{1,4}[0-9]{3,4}:? [\[`A-Z]|\.[a-z]{1,5}:[0-9]+:[0-9]+: |would reformat|Failed example|\*\*\*Test Failed)",
        2,
        4,
    ),
    Mark("test_other", r"(?:not ok [0-9]|[0-9] failing\s*\n|<<< (?:FAILURE|ERROR)|panicked at |: Failure\s*\n)", 8, 30),
    Mark(
        "launcher",
        r"(?:ChildFailedError|Container rank [0-9]|LAUNCH ERROR|Pod failed|Root Cause \(first|srun: error|sigkill_handler|died with <Signals|MPI_ABORT|Primary job  terminated)",
        6,
        30,
    ),
    Mark("make", r"(?:\*\*\* |build stopped: |Error [0-9]+\n|ERR! )", 20, 3),
    Mark("step", r"(?:Current runner version|Run [^\n]{1,200}|\$ |^\+ |~~~ |--- |\+\+\+ )", 1, 1),
)
# Marks that stand on nearly any line of some logs: they never alone keep lines of a large log.
WEAK = frozenset({"step", "test_word", "section"})
