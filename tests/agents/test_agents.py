"""Coding agents from npm, unmodified, do a whole task by the real names of their models' hosts.

Each starts in a workspace whose network is `none`, is refused, and does the task after its host was allowed, by the
same process. The model is scripted (model_server.py) and has a certificate of a private CA. Telemetry stays refused.
"""

import json
import sys
import unittest

import installed
import model_server

sys.path.insert(0, str(installed.HERE.parent / "e2e"))
import harness  # noqa: E402
import outside  # noqa: E402

# Suites that run at the same time each have a network of their own.
NETWORK = {"lxc": "127.101.0", "docker": "127.102.0", "docker-userns": "127.103.0"}[harness.BACKEND]
MODEL = f"{NETWORK}.10"
DNS = f"{NETWORK}.53"

ANTHROPIC = "api.anthropic.com"
OPENAI = "api.openai.com"
GEMINI = "generativelanguage.googleapis.com"
QWEN = "dashscope.aliyuncs.com"

HOME = "/home/user"
TASK = "Fix the failing test"
RESULT = "fixed.txt"
START_S = 60  # for an agent to ask for its model
RETRY_S = 120  # between two retries, and for the task


class Agents(harness.TestCase):
    settings = {"network.resolvers": [DNS], "network.reachable": [f"{NETWORK}.0/24"]}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        authority = outside.Authority(cls.daemon.directory / "authority")
        hosts = (ANTHROPIC, OPENAI, GEMINI, QWEN)
        dns = outside.Dns(dict.fromkeys(hosts, MODEL), DNS)
        cls.addClassCleanup(dns.close)
        cls.model = model_server.ModelServer(MODEL, authority.context(*hosts), f"echo done > {RESULT}")
        cls.addClassCleanup(cls.model.close)
        cls.daemon.cli("create", "--repo", cls.url, "--name", "base", "--network", "none")
        installed.copy_into(cls.daemon, "base")
        cls.client.write_file("base", f"{HOME}/ca.pem", authority.file.read_bytes())
        cls.daemon.cli("stop", "base")

    def start(self, workspace, argv, environment):
        """The agent in WORKSPACE. Standard input is empty: several wait for its end."""
        environment = {"NODE_EXTRA_CA_CERTS": f"{HOME}/ca.pem", "SSL_CERT_FILE": f"{HOME}/ca.pem",
                       "PATH": f"{HOME}/agents/node_modules/.bin:/usr/local/bin:/usr/bin:/bin", **environment}
        settings = [word for item in environment.items() for word in ("-e", "=".join(item))]
        output = {}
        for name in ("stdout", "stderr"):
            output[name] = open(self.daemon.directory / f"{workspace}.{name}", "w+b")
            self.addCleanup(output[name].close)
        agent = self.daemon.cli_popen("exec", "-n", *settings, workspace, "--", *argv, **output)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        return agent

    def stderr(self, workspace):
        return (self.daemon.directory / f"{workspace}.stderr").read_text(errors="replace")

    def works_on_once_its_model_is_allowed(self, host, *argv, **environment):
        workspace = argv[0]
        self.daemon.cli("fork", "base", workspace)
        self.addCleanup(self.client.delete, workspace, purge=True)
        self.model.seen.clear()
        agent = self.start(workspace, argv, environment)
        line = f"moorage: {host} was refused: no rule allows it; allow it: moorage net allow {workspace} {host}\n"

        def refused(more_than=0):
            """True after that many refusals; fails if the agent ended."""
            self.assertIsNone(agent.poll(), self.stderr(workspace))
            return line in self.stderr(workspace) and self.refusals(workspace) > more_than

        harness.wait_until(refused, START_S, f"the refusal of {host}")
        self.assertIn(f"refused  {self.running(workspace)}  {host}: no rule allows it", self.log(workspace))
        before = self.refusals(workspace)
        harness.wait_until(lambda: refused(before), RETRY_S, "a retry")
        self.assertEqual(self.model.seen, [])

        self.daemon.cli("net", "allow", workspace, host)
        self.assertEqual(agent.wait(RETRY_S * harness.PATIENCE), 0, self.stderr(workspace))
        self.assertEqual(self.client.read_file(workspace, RESULT), b"done\n")
        self.assertEqual({name for name, *_ in self.model.seen}, {host})
        self.assertEqual(self.stderr(workspace).count(line), 1)
        self.assertIn(f"{host}:443: a rule of this workspace ({host})", self.log(workspace))

    def refusals(self, workspace):
        return json.loads(self.daemon.cli("--json", "net", "show", workspace).stdout)["use"]["refused"]

    def log(self, workspace):
        return self.daemon.cli("net", "log", workspace).stdout.decode()

    def running(self, workspace):
        return self.client.execs(workspace, running=True)[0]["id"]

    def test_claude_works_on_once_its_model_is_allowed(self):
        self.works_on_once_its_model_is_allowed(
            ANTHROPIC, "claude", "-p", "--dangerously-skip-permissions", TASK, ANTHROPIC_API_KEY="key")

    def test_cline_works_on_once_its_model_is_allowed(self):
        self.works_on_once_its_model_is_allowed(
            ANTHROPIC, "cline", "-P", "anthropic", "-k", "key", "-m", "claude-sonnet-4-5", TASK)

    def test_codex_works_on_once_its_model_is_allowed(self):
        self.works_on_once_its_model_is_allowed(
            OPENAI, "codex", "exec", "--dangerously-bypass-approvals-and-sandbox", TASK, CODEX_API_KEY="key")

    def test_copilot_works_on_once_its_model_is_allowed(self):
        self.works_on_once_its_model_is_allowed(
            ANTHROPIC, "copilot", "--allow-all-tools", "--allow-all-paths", "-p", TASK, COPILOT_OFFLINE="true",
            COPILOT_MODEL="claude-sonnet-4-5", COPILOT_PROVIDER_TYPE="anthropic", COPILOT_PROVIDER_API_KEY="key",
            COPILOT_PROVIDER_BASE_URL=f"https://{ANTHROPIC}")

    def test_gemini_works_on_once_its_model_is_allowed(self):
        self.works_on_once_its_model_is_allowed(
            GEMINI, "gemini", "--yolo", "-p", TASK, GEMINI_API_KEY="key", GEMINI_CLI_TRUST_WORKSPACE="true")

    def test_opencode_works_on_once_its_model_is_allowed(self):
        self.works_on_once_its_model_is_allowed(
            ANTHROPIC, "opencode", "run", "--auto", "-m", "anthropic/claude-sonnet-4-5", TASK, ANTHROPIC_API_KEY="key")

    def test_pi_works_on_once_its_model_is_allowed(self):
        self.works_on_once_its_model_is_allowed(
            ANTHROPIC, "pi", "--provider", "anthropic", "-p", TASK, ANTHROPIC_API_KEY="key")

    def test_qwen_works_on_once_its_model_is_allowed(self):
        self.works_on_once_its_model_is_allowed(
            QWEN, "qwen", "--yolo", "-p", TASK, OPENAI_API_KEY="key", OPENAI_MODEL="qwen3-coder-plus",
            OPENAI_BASE_URL=f"https://{QWEN}/compatible-mode/v1")


if __name__ == "__main__":
    unittest.main()
