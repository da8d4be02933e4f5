"""Coding agents from npm do a whole task with a placeholder in the place of their key.

TLS ends at the egress of their workspace, which puts the key into the requests to their model. The key is a canary: only
the server outside knows it, answers 401 without it, and nothing inside has it afterwards.
"""

import secrets
import sys
import time
import unittest

import installed
import model_server

sys.path.insert(0, str(installed.HERE.parent / "e2e"))
import canaries  # noqa: E402
import harness  # noqa: E402
import outside  # noqa: E402
from test_agents import ANTHROPIC, GEMINI, HOME, OPENAI, QWEN, RESULT, RETRY_S, TASK  # noqa: E402

MODEL = outside.address("4.10")
CHATGPT = "chatgpt.com"  # where Codex sends its key as well, to list models


class Keys(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        authority = outside.Authority(installed.install() / f"authority-{harness.BACKEND}")
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(authority.file)}
        super().setUpClass()
        cls.canary = f"sk-canary-{secrets.token_hex(8)}"
        canaries.keep_out(cls.daemon, cls.canary)
        hosts = (ANTHROPIC, OPENAI, GEMINI, QWEN, CHATGPT)
        dns = outside.Dns(dict.fromkeys(hosts, MODEL))
        cls.addClassCleanup(dns.close)
        cls.model = model_server.ModelServer(MODEL, authority.context(*hosts), f"echo done > {RESULT}")
        cls.addClassCleanup(cls.model.close)
        cls.daemon.cli("create", "--repo", cls.url, "--name", "base", "--network", "none")
        installed.copy_into(cls.daemon, "base")
        cls.daemon.cli("stop", "base")

    def setUp(self):
        self.model.key = f"{self.canary}-{secrets.token_hex(8)}"
        self.model.seen.clear()
        self.model.unknown.clear()

    def credential(self, host, form, variable, *options, key=None):
        self.daemon.cli("credential", "add", "model", "--for", f"https://{host}/", "--as", form, "--env", variable, *options,
                        "--from-stdin", input=(key or self.model.key).encode() + b"\n")
        self.addCleanup(self.daemon.cli, "credential", "rm", "model")

    def run_agent(self, workspace, *argv, hosts, **environment):
        """Its exit code, and the seconds that it took."""
        self.daemon.cli("fork", "base", workspace)
        self.addCleanup(self.client.delete, workspace, purge=True)
        self.daemon.cli("net", "allow", workspace, *hosts)
        environment = {"PATH": f"{HOME}/agents/node_modules/.bin:/usr/local/bin:/usr/bin:/bin", **environment}
        settings = [word for item in environment.items() for word in ("-e", "=".join(item))]
        began = time.monotonic()
        self.output = self.daemon.cli("exec", "-n", *settings, workspace, "--", *argv, check=False, timeout=RETRY_S * harness.PATIENCE)
        return self.output.returncode, time.monotonic() - began

    def does_its_task(self, workspace, *argv, hosts, **environment):
        """The seconds that it took."""
        code, took_s = self.run_agent(workspace, *argv, hosts=hosts, **environment)
        said = (self.output.stdout[-2000:], self.output.stderr[-2000:])
        self.assertEqual(code, 0, said)
        self.assertEqual(self.client.read_file(workspace, RESULT), b"done\n", said)
        self.assertEqual([request for request in self.model.unknown if any(request[-1])], [], "requests with something else")
        self.assertGreater(len(self.model.seen), 1)
        self.assert_inside_has_nothing(workspace)
        print(f"{argv[0]}: {took_s:.1f} s, {len(self.model.seen)} requests")
        return took_s

    def assert_inside_has_nothing(self, workspace):
        search = canaries.Search(self.model.key.encode())
        root = f"/proc/{self.daemon.sandbox_pids(workspace)['init']}/root"
        places = [f"{root}/{name}" for name in ("home", "workspace", "tmp", "etc", "run", "dev/shm", ".moorage")]
        self.assertEqual(search.files(*places, without={f"{root}/home/user/agents"}), [])
        self.assertFalse(search.text(self.output.stdout + self.output.stderr))
        inside = [pid for pid in canaries.of_sandbox(self.daemon, workspace) if not canaries.name_of(pid).startswith("moorage-egress")]
        self.assertEqual(canaries.holders(search, inside, canaries.Search.memory), [])
        placeholder = canaries.Search(b"moorage-credential-model")
        self.assertTrue(placeholder.text(self.client.exec(workspace, "env").stdout))

    def test_claude_does_its_task_with_a_placeholder(self):
        self.credential(ANTHROPIC, "header:X-Api-Key", "ANTHROPIC_API_KEY")
        self.does_its_task("claude", "claude", "-p", "--dangerously-skip-permissions", TASK, hosts=[ANTHROPIC])

    def test_claude_ends_soon_when_its_key_is_wrong(self):
        self.credential(ANTHROPIC, "header:X-Api-Key", "ANTHROPIC_API_KEY", key="sk-of-yesterday")
        code, took_s = self.run_agent("wrong", "claude", "-p", "--dangerously-skip-permissions", TASK, hosts=[ANTHROPIC])
        self.assertEqual(code, 1, self.output)
        self.assertIn(b"did not accept the credential model (401)", self.output.stdout + self.output.stderr)
        self.assertLess(took_s, 15 * harness.PATIENCE)  # with a 401 it tries for three minutes
        print(f"claude with a wrong key: {took_s:.1f} s")

    def test_codex_does_its_task_with_a_placeholder(self):
        """It also asks chatgpt.com with its key. Where TLS ends at the egress, the placeholder is refused there at once."""
        self.credential(OPENAI, "bearer", "CODEX_API_KEY", "--for", f"https://{CHATGPT}/nothing/")
        took_s = self.does_its_task("codex", "codex", "exec", "--dangerously-bypass-approvals-and-sandbox", TASK,
                                    hosts=[OPENAI, CHATGPT])
        self.assertIn("the placeholder of the credential model was sent where it is not valid: GET chatgpt.com/backend-api/codex/models",
                      self.daemon.cli("net", "log", "codex").stdout.decode())
        self.assertLess(took_s, 20 * harness.PATIENCE)

    def test_codex_does_its_task_over_a_websocket(self):
        self.model.websockets = True
        self.addCleanup(setattr, self.model, "websockets", False)
        self.credential(OPENAI, "bearer", "CODEX_API_KEY", "--for", f"https://{CHATGPT}/nothing/")
        before = self.model.upgraded
        took_s = self.does_its_task("websocket", "codex", "exec", "--dangerously-bypass-approvals-and-sandbox", TASK,
                                    hosts=[OPENAI, CHATGPT])
        self.assertGreater(self.model.upgraded, before)
        self.assertLess(took_s, 6 * harness.PATIENCE)  # without them it tries for some seconds

    def test_codex_with_a_provider_of_its_own_does_its_task_with_a_placeholder(self):
        self.credential(OPENAI, "bearer", "OPENAI_API_KEY")
        provider = ('model_providers.own={name="own", base_url="https://api.openai.com/v1", env_key="OPENAI_API_KEY", '
                    'wire_api="responses"}')
        took_s = self.does_its_task("own", "codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "-c", 'model_provider="own"',
                                    "-c", provider, TASK, hosts=[OPENAI])
        self.assertLess(took_s, 10 * harness.PATIENCE)

    def test_gemini_does_its_task_with_a_placeholder(self):
        self.credential(GEMINI, "header:X-Goog-Api-Key", "GEMINI_API_KEY")
        self.does_its_task("gemini", "gemini", "--yolo", "-p", TASK, hosts=[GEMINI], GEMINI_CLI_TRUST_WORKSPACE="true")

    def test_opencode_does_its_task_with_a_placeholder(self):
        self.credential(ANTHROPIC, "header:X-Api-Key", "ANTHROPIC_API_KEY")
        self.does_its_task("opencode", "opencode", "run", "--auto", "-m", "anthropic/claude-sonnet-4-5", TASK, hosts=[ANTHROPIC])

    def test_qwen_does_its_task_with_a_placeholder(self):
        self.credential(QWEN, "bearer", "OPENAI_API_KEY")
        self.does_its_task("qwen", "qwen", "--yolo", "-p", TASK, hosts=[QWEN], OPENAI_MODEL="qwen3-coder-plus",
                           OPENAI_BASE_URL=f"https://{QWEN}/compatible-mode/v1")


if __name__ == "__main__":
    unittest.main()
