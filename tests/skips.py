"""Hooks of pytest: with --may_skip a test that is skipped for any other reason fails the run."""

import re


def pytest_addoption(parser):
    parser.addoption("--may_skip", metavar="REGEX",
                     help="fail the run if a test is skipped for a reason without this pattern")


def unexpected_skips(config):
    """Return the reasons of skipped tests, sorted, in which --may_skip does not occur."""
    expected = config.getoption("may_skip")
    if expected is None:
        return []
    reports = config.pluginmanager.get_plugin("terminalreporter").stats.get("skipped", [])
    reasons = {reason for _, _, reason in (report.longrepr for report in reports)}
    return sorted(reason for reason in reasons if not re.search(expected, reason))


def pytest_sessionfinish(session):
    """Let a run fail that skipped what it should not; workers leave this to their main process."""
    is_worker = hasattr(session.config, "workerinput")
    reasons = [] if is_worker else unexpected_skips(session.config)
    for reason in reasons:
        print(f"\nSkipped in spite of --may_skip: {reason}")
    if reasons and session.exitstatus == 0:
        session.exitstatus = 1
