"""Things that a command inside the default sandbox can see and use up."""

import os
import unittest

import harness


class Isolation(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["MOORAGE_HOST_SECRET"] = "visible"
        limits = {"memory_bytes": 256 << 20, "cpus": 1, "pids": 64}
        cls.client.create(repo_url=cls.url, name="jail", limits=limits)
        cls.client.create(repo_url=cls.url, name="other")
        cls.client.exec("other", "echo secret > secret; sleep 1000 &")

    def sh(self, script, **fields):
        return self.client.exec("jail", script, **fields)

    def test_loopback_is_the_only_network(self):
        self.assertEqual(self.sh("cat /proc/net/dev | tail -n +3 | cut -d: -f1").stdout.split(), [b"lo"])
        self.assertEqual(self.sh("cat /proc/net/route | wc -l").stdout.strip(), b"1")
        self.assertNotEqual(self.sh("timeout 3 bash -c '</dev/tcp/127.0.0.1/%d'" % self.git_server.port).exit_code, 0)

    def test_no_host_process_and_no_other_workspace_is_visible(self):
        listed = self.sh("ls /proc | grep -c '^[0-9]'; cat /proc/*/cmdline | tr '\\0' ' '").stdout.decode()
        self.assertLess(int(listed.split("\n")[0]), 12)
        self.assertNotIn("sleep 1000", listed)
        self.assertNotIn("mooraged", listed)
        self.assertNotIn(b"secret", self.sh("find / -xdev -name secret 2>/dev/null").stdout)

    def test_no_host_environment_and_no_host_file_outside_the_image(self):
        self.assertNotIn(b"MOORAGE_HOST_SECRET", self.sh("env; cat /proc/1/environ 2>/dev/null; cat /proc/self/environ").stdout)
        for path in ("/etc/shadow", "/etc/machine-id", "/root/.ssh", str(self.daemon.directory), "/var/lib/moorage",
                     "/etc/ssh", "/var/run/docker.sock", str(self.daemon.store)):
            self.assertEqual(self.sh(f"ls -d {path}").exit_code, 2, path)
        self.assertEqual(self.sh("cut -d: -f1 /etc/passwd | grep -xF -e " + os.environ.get("SUDO_USER", "daemon-host-user")).exit_code, 1)

    def test_the_system_is_read_only_and_sudo_is_root_of_the_sandbox_only(self):
        self.assertNotEqual(self.sh("sudo touch /usr/bin/x").exit_code, 0)
        self.assertNotEqual(self.sh("sudo sh -c 'echo x > /proc/sys/kernel/core_pattern'").exit_code, 0)
        self.assertEqual(self.sh("sudo id -u").stdout, b"0\n")
        self.assertEqual(self.sh("id -un").stdout, b"user\n")
        self.assertNotEqual(self.sh("sudo mount -t tmpfs x /mnt").exit_code, 0)
        self.assertNotEqual(self.sh("unshare -Ur true").exit_code, 0)

    def test_the_warden_cannot_be_read_traced_or_killed_from_inside(self):
        self.assertNotEqual(self.sh("sudo cat /proc/1/mem").exit_code, 0)
        self.assertNotEqual(self.sh("sudo ls /proc/1/fd").exit_code, 0)
        self.assertNotEqual(self.sh("sudo sh -c 'cat /.moorage/warden >/dev/null'").exit_code, 0)
        self.sh("sudo kill -9 1; sudo kill -TERM 1; sudo kill -STOP 1")
        self.assertEqual(self.sh("true").exit_code, 0)

    def test_a_memory_bomb_is_killed_and_the_next_exec_works(self):
        bomb = self.sh("python3 -c 'x=[]\nwhile True: x.append(bytearray(1<<20))'")
        self.assertEqual(bomb.exec["state"], "oom_killed", bomb.exec)
        self.assertEqual(bomb.exit_code, 137)
        self.assertEqual(self.sh("echo fine").stdout, b"fine\n")

    def test_a_fork_bomb_is_limited_and_the_next_exec_works(self):
        bomb = ("import os, errno, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0:\n      time.sleep(3); os._exit(0)\n    n += 1\n"
                "except OSError as e: print(errno.errorcode[e.errno], n)\n")
        result = self.sh(["python3", "-c", bomb])
        name, count = result.stdout.split()
        self.assertEqual(name, b"EAGAIN")
        self.assertLessEqual(int(count), 64)
        follow = self.client.exec("jail", "echo fine", timeout_ms=20000)
        harness.wait_until(lambda: self.sh("echo fine").stdout == b"fine\n", what="an exec after the bomb")
        self.assertIn(follow.exec["state"], ("exited",))

    def test_a_fork_bomb_that_outlives_its_command_is_ended(self):
        result = self.sh(":(){ sleep 1000 & :; }; :")
        self.assertNotEqual(result.exec["state"], "running")
        harness.wait_until(lambda: self.sh("pgrep -c sleep").stdout == b"0\n", what="the bomb is gone")
        left = self.sh("for i in 1 2 3; do setsid sleep 700 >/dev/null 2>&1 & done")
        self.assertEqual(left.exit_code, 0)
        harness.wait_until(lambda: self.sh("pgrep -c sleep").stdout == b"3\n", what="legitimate background processes keep running")
        self.sh("pkill sleep")

    def test_a_timeout_kills_daemonised_children_too(self):
        script = "(setsid sleep 777 &); (setsid sh -c 'sleep 778 & sleep 779' &); sleep 100"
        result = self.sh(script, timeout_ms=500)
        self.assertEqual((result.exec["state"], result.exit_code), ("timed_out", 124))
        self.assertEqual(self.sh("pgrep -f 'sleep 77[789]'").exit_code, 1)

    def test_live_sandboxes_have_disjoint_id_ranges(self):
        maps = []
        for name in ("jail", "other"):
            first = int(self.client.exec(name, "awk '{print $2}' /proc/self/uid_map").stdout)
            self.assertGreater(first, 0)
            maps.append(first)
        self.assertGreaterEqual(abs(maps[0] - maps[1]), 65536)

    def test_seccomp_and_capabilities_apply_to_commands(self):
        status = dict(l.split(":\t") for l in self.sh("cat /proc/self/status").stdout.decode().splitlines() if ":\t" in l)
        self.assertEqual(status["Seccomp"].strip(), "2")
        self.assertEqual(int(status["CapEff"], 16), 0)
        bounding = int(status["CapBnd"], 16)
        for name, bit in (("sys_admin", 21), ("sys_module", 16), ("mknod", 27), ("net_admin", 12), ("sys_rawio", 17), ("sys_ptrace", 19)):
            self.assertFalse(bounding >> bit & 1, name)
        self.assertEqual(self.sh("ls /proc/self/fd | wc -l").stdout.strip(), b"4")  # 0-2 and the directory itself


if __name__ == "__main__":
    unittest.main()
