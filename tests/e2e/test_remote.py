"""Sandboxes on another machine, reached by a real ssh: the work stays here, whatever happens to the machine."""

import json
import os
import signal
import unittest

import harness
import on_ssh
import trees


class Remote(on_ssh.OnSsh):
    more = {"daemon.reconcile_interval_s": 1}

    def test_commands_run_there_and_their_files_are_here_when_they_end(self):
        self.create("first")
        self.assertEqual(self.out("first", "cat src/a.txt; hostname"), "a\nsandbox")
        self.out("first", "mkdir -p deep/er; echo made > deep/er/file; rm README.md; ln -s deep link; echo h > ~/notes")
        self.assertEqual(self.client.read_file("first", "deep/er/file"), b"made\n")
        self.assertEqual(self.out("first", "git status --porcelain"), "D README.md\n?? deep/\n?? link")
        name = self.name_of("first")
        self.assertIn(name, self.there())
        self.client.stop("first")
        self.assertNotIn(name, self.there())
        self.assertEqual(self.client.read_file("first", "deep/er/file"), b"made\n")
        self.assertEqual(self.out("first", "cat deep/er/file ~/notes; ls"), "made\nh\ndeep\nlink\nsrc")

    def test_files_written_here_are_there_for_the_next_command(self):
        self.create("writes")
        self.out("writes", "mkdir from")
        self.client.write_file("writes", "from/here", b"hello")
        self.assertEqual(self.out("writes", "cat from/here"), "hello")
        self.client.remove_file("writes", "from/here")
        self.assertEqual(self.out("writes", "ls from"), "")

    def test_a_daemon_killed_during_a_command_finds_it_again(self):
        self.create("killed")
        record = self.client.start_exec("killed", ["sh", "-c", "for i in $(seq 100); do echo $i; sleep 0.05; done; echo end > end"])
        harness.wait_until(lambda: self.client.raw_output(record["id"]), what="output")
        self.daemon.restart()
        end = self.client.wait(record["id"])
        self.assertEqual((end["state"], end["exit_code"]), ("exited", 0))
        self.assertEqual(self.client.raw_output(record["id"]).decode().split(), [str(i) for i in range(1, 101)])
        self.assertEqual(self.client.read_file("killed", "end"), b"end\n")

    def test_a_command_goes_on_when_every_process_here_is_killed(self):
        self.create("all")
        script = "for i in $(seq 200); do echo $i; sleep 0.05; done; echo end > end"
        record = self.client.start_exec("all", ["sh", "-c", script])
        harness.wait_until(lambda: self.client.raw_output(record["id"]), what="output")
        first = self.keeper("all")
        os.kill(first, signal.SIGKILL)
        second = harness.wait_until(lambda: {self.keeper("all"), first, None} - {first, None}, what="a new keeper").pop()
        self.daemon.kill()
        os.kill(second, signal.SIGKILL)
        self.daemon.start()
        end = self.client.wait(record["id"])
        self.assertEqual((end["state"], end["exit_code"]), ("exited", 0), end)
        self.assertEqual(self.client.raw_output(record["id"]).decode().split(), [str(i) for i in range(1, 201)])
        self.assertEqual(self.client.read_file("all", "end"), b"end\n")
        self.assertEqual(self.out("all", "cat end"), "end")

    def test_a_command_that_ended_while_nobody_was_connected_has_its_own_end(self):
        self.create("ended")
        size = 100_000_000  # its end waits for this
        record = self.client.start_exec("ended", ["sh", "-c", f"echo begun; sleep 1; head -c {size} /dev/urandom > large; exit 7"])
        harness.wait_until(lambda: self.client.raw_output(record["id"]), what="output")
        self.host.stop()
        place = self.host.directory / "sandboxes" / self.name_of("ended")
        large = place / "tree/upper/large"
        harness.wait_until(lambda: large.exists() and large.stat().st_size == size, 60, what="the file there")
        self.daemon.kill()
        self.host.start()
        self.daemon.start()
        end = self.client.wait(record["id"])
        self.assertEqual((end["state"], end.get("exit_code")), ("exited", 7), end)
        self.assertEqual(self.client.raw_output(record["id"]), b"begun\n")

    def test_a_lost_machine_costs_nothing_that_was_answered(self):
        self.create("lost")
        self.out("lost", "echo kept > kept")
        record = self.client.start_exec("lost", ["sleep", "1000"])
        outpost = next((self.host.directory / "bin").glob("*/moorage-outpost"))
        self.host.ssh(outpost, "remove", "--dir", self.host.directory, "--name", self.name_of("lost"))
        end = self.client.wait(record["id"])
        self.assertEqual(end["state"], "interrupted", end)
        self.assertIn("its machine is gone", end["error"])
        self.assertEqual(self.out("lost", "cat kept"), "kept")

    def test_a_sandbox_whose_first_process_was_killed_there_is_replaced_with_all_of_its_files(self):
        self.create("ended-there")
        record = self.client.start_exec("ended-there", ["sh", "-c", "echo last > last; echo begun; sleep 1000"])
        harness.wait_until(lambda: self.client.raw_output(record["id"]), what="output")
        init = self.host.directory / "sandboxes" / self.name_of("ended-there") / "init.json"
        os.kill(json.loads(init.read_text())["pid"], signal.SIGKILL)
        end = self.client.wait(record["id"])
        self.assertEqual((end["state"], end["category"]), ("interrupted", "lost"), end)
        self.assertIn("the sandbox ended on the other machine", end["error"])
        self.assertEqual(self.client.raw_output(record["id"]), b"begun\n")
        self.assertEqual(self.out("ended-there", "cat last"), "last")

    def test_a_task_moves_there_and_back_with_the_same_files(self):
        self.client.create(repo_url=self.url, name="moves", backend="lxc")
        self.client.exec("moves", ["python3", "-c", trees.MAKE])
        self.out("moves", "echo h > ~/notes; echo one > one")
        before = self.out("moves", trees_digest())
        for place in ({"backend": "ssh", "runtime": "spare"}, {"backend": "ssh", "runtime": "other"}, {"backend": "lxc"}):
            self.client.move("moves", **place)
            self.assertEqual(self.out("moves", trees_digest()), before, place)
        self.assertEqual(self.there(self.hosts["other"]), [])


def trees_digest():
    """Prints a digest of the tree and the home as a command sees them. Large files are sparse: their blocks are compared."""
    return ("cd /; find workspace home/user -printf '%p %y %m %u %g %s %l %T@\n' | LC_ALL=C sort | sha256sum; "
            "find workspace home/user -type f -size -1M -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum")


if __name__ == "__main__":
    unittest.main()
