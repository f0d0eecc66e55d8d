"""The rules over HTTP, with the embedded store."""

from server.replace_rules import ReplaceRules, loaded  # noqa: F401  # a fixture of the suite


class TestRulesOnSqlite(ReplaceRules):
    pass
