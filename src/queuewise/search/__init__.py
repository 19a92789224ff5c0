"""Search for rules: a parametric score (`policies.rule_family`) whose numbers are found on the past days of a log."""
