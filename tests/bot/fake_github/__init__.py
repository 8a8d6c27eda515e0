"""A stateful double of GitHub's REST API: one repository with its pull requests, comments, runs, logs and check runs.

Every request and every response is checked against GitHub's own OpenAPI document (a reduced copy). A response that
breaks it is the double's fault, a request that does is the bot's: a test ends with `assert not fake.violations`.
"""

from fake_github.server import FakeGitHub, Fault

__all__ = ["FakeGitHub", "Fault"]
