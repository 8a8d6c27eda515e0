"""Test-matrix runner: spec, plan, engines, records, triage, reports."""
