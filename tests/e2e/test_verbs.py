"""Every verb on every backend, through the daemon: it works, or the table in docs/backends.md says what is missing.

MOORAGE_WRITE_TABLE=1 writes that table from the results. Needs tests/engines/with_engine.py --ssh --rented."""

import json
import os
import string
import unittest

import harness
import raw_api
import verb_calls

DOCUMENT = harness.ROOT / "docs/backends.md"
BACKENDS = ("lxc", "docker", "ssh", "e2b", "daytona")
LIMITS = {"memory_bytes": 128 << 20, "pids": 100}
MOST = 16  # machines at once


def given(name):
    return os.environ[f"MOORAGE_TEST_{name}"]


def settings():
    """Of a daemon, and the backends that it can have here."""
    lines = {"backends": {}, "remote.sync_interval_s": 1, "sandbox.start_deadline_s": 60}
    backends = ["lxc"]
    if "MOORAGE_TEST_DOCKER_SOCKET" in os.environ:
        lines["docker.socket"] = given("DOCKER_SOCKET")
        backends.append("docker")
    lines["backends"]["ssh"] = {"config_file": given("SSH_CONFIG"), "hosts": [
        {"name": "other", "destination": given("SSH_HOST"), "directory": given("SSH_DIRECTORY"), "max_sandboxes": MOST}]}
    lines["backends"]["e2b"] = {"key_file": given("E2B_KEY"), "api_url": given("E2B_URL"), "sandbox_url": given("E2B_URL")}
    lines["backends"]["daytona"] = {"key_file": given("DAYTONA_KEY"), "api_url": given("DAYTONA_URL") + "/api"}
    for name in ("e2b", "daytona"):
        lines["backends"][name]["max_sandboxes"] = MOST
    return lines, [*backends, "ssh", "e2b", "daytona"]


def between(text):
    begin, end = "<!-- verbs: begin -->\n", "<!-- verbs: end -->\n"
    start = text.index(begin) + len(begin)
    return start, text.index(end, start)


def table(results, missing, before):
    """RESULTS: {verb: {backend: None or what is missing}}. Cells of MISSING backends are taken from the text before."""
    old = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in before.splitlines()
           if line.startswith("| ")}
    reasons_before = dict(line[2:].split(": ", 1) for line in before.splitlines() if line.startswith("- "))
    lines = ["| verb | " + " | ".join(BACKENDS) + " |", "|---" * (len(BACKENDS) + 1) + "|"]
    letters = {}
    for verb, found in results.items():
        cells = []
        for at, backend in enumerate(BACKENDS):
            reason = found.get(backend)
            if backend in missing:
                cell = old.get(verb, ["not run"] * len(BACKENDS))[at]
                reason = reasons_before.get(cell.partition("(")[2].rstrip(")")) if "(" in cell else None
                word = cell.partition(" (")[0]
            else:
                word, reason = ("works", None) if reason is None else reason
            cells.append(f"{word} ({letters.setdefault(reason, string.ascii_lowercase[len(letters)])})" if reason else word)
        lines.append(f"| {verb} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"- {letter}: {reason}" for reason, letter in letters.items())]).rstrip() + "\n"


class Verbs(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.settings, cls.backends = settings()
        super().setUpClass()
        cls.results = {verb: {} for verb in [*verb_calls.VERBS, "idle stop"]}

    def call(self, verb, function, backend, name):
        """Notes what is missing there."""
        with self.subTest(verb=verb, backend=backend):
            self.results[verb][backend] = ("**fails**", None)
            try:
                missing = function(verb_calls.Task(self, backend, name))
                self.results[verb][backend] = ("partly", missing) if missing else None
            except raw_api.ApiError as refusal:
                if refusal.code != "unsupported":
                    raise
                self.results[verb][backend] = ("refused", refusal.message)

    def test_every_verb_works_or_the_table_says_what_is_missing(self):
        for backend in self.backends:
            self.client.create(repo_url=self.url, name=backend, backend=backend, limits=LIMITS)
            for verb, function in verb_calls.VERBS.items():
                self.call(verb, function, backend, backend)
        lines = json.loads(self.daemon.config.read_text())
        lines["sandbox"]["idle_stop_s"] = 1
        self.daemon.config.write_text(json.dumps(lines))
        self.daemon.stop()
        self.daemon.start()
        for backend in self.backends:
            self.call("idle stop", verb_calls.idle_stop, backend, backend)
        text = DOCUMENT.read_text()
        start, end = between(text)
        made = table(self.results, set(BACKENDS) - set(self.backends), text[start:end])
        if os.environ.get("MOORAGE_WRITE_TABLE"):
            DOCUMENT.write_text(text[:start] + made + text[end:])
        self.assertEqual(made, text[start:end], "docs/backends.md differs; write it with MOORAGE_WRITE_TABLE=1")


if __name__ == "__main__":
    unittest.main()
