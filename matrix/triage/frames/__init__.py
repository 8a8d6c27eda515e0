"""Frames: the structure of a log (steps, tracebacks, test reports, tools' errors), taken apart before any rule is asked."""
