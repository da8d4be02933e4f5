"""Words that people guess: names and labels that change, ends and stops in one vocabulary, people by name."""

import os
import pwd
import unittest

import harness
import raw_api

ME = pwd.getpwuid(os.getuid()).pw_name


class Words(harness.TestCase):
    settings = {"workspace.delete_losers": True}

    def make(self, name, **fields):
        return self.client.create(repo_url=self.url, name=name, **fields)

    def events(self, name, kind):
        id_ = self.client.workspace(name)["id"]
        return [e["text"] for e in self.client.events() if e["kind"] == kind and e.get("workspace") == id_]

    def refused(self, code, call):
        with self.assertRaises(raw_api.ApiError) as error:
            call()
        self.assertEqual(error.exception.code, code, str(error.exception))
        return str(error.exception)

    def cli(self, *words, **options):
        return self.daemon.cli(*words, **options).stdout.decode()

    def test_a_workspace_gets_another_name_and_keeps_its_work(self):
        before = self.make("old")["id"]
        self.make("taken")
        self.client.exec("old", "echo work > file")
        self.refused("already_exists", lambda: self.client.update("old", name="taken"))
        self.refused("invalid_argument", lambda: self.client.update("old", name="No Name"))
        self.assertEqual(self.cli("rename", "old", "fresh"), " renamed  old -> fresh\n")
        self.assertEqual(self.client.workspace("fresh")["id"], before)
        self.refused("not_found", lambda: self.client.workspace("old"))
        self.assertEqual(self.client.exec("fresh", "cat file").stdout, b"work\n")  # in the same sandbox
        self.assertEqual(self.events("fresh", "workspace.renamed"), [f"old -> fresh, set by {ME}"])
        note = self.daemon.store / "workspaces" / before / "about.json"
        harness.wait_until(lambda: note.exists() and '"fresh"' in note.read_text(), what="the note for rescue mode")
        self.assertEqual(self.make("old")["name"], "old")  # the name is free again

    def test_a_working_directory_may_be_below_the_workspace(self):
        self.client.create(repo_url=self.url, name="below")
        self.client.exec("below", "mkdir -p src/deep")
        for given, seen in (("src/deep", "/workspace/src/deep"), ("/home/user", "/home/user"), (".", "/workspace")):
            self.assertEqual(self.daemon.cli("exec", "--cwd", given, "below", "--", "pwd").stdout.decode().strip(), seen)

    def test_labels_change_one_by_one(self):
        self.make("labelled", labels={"task": "7", "old": "x"})
        self.assertEqual(self.cli("label", "labelled", "task=8", "team=a", "old-"), " labels   task=8 team=a\n")
        self.assertEqual(self.client.workspace("labelled")["labels"], {"task": "8", "team": "a"})
        self.assertEqual(self.events("labelled", "workspace.labels"), [f"old-, task=8, team=a, set by {ME}"])
        missing = self.daemon.cli("label", "labelled", "zzz-", "task=8")
        self.assertEqual(missing.stderr.decode(), "moorage: labelled has no label 'zzz'\n")
        self.assertIn("labelled", self.cli("ls", "--label", "task=8"))
        self.assertNotIn("labelled", self.cli("ls", "--label", "task=7"))
        self.refused("invalid_argument", lambda: self.client.update("labelled", labels={"bad key": "x"}))
        self.refused("invalid_argument", lambda: self.client.update("labelled", labels={"key": 7}))

    def test_a_name_and_labels_need_the_lease(self):
        self.make("held")
        token = self.client.acquire_lease("held", "agent-7")["token"]
        for change in ({"name": "other"}, {"labels": {"a": "b"}}):
            self.assertIn("agent-7", self.refused("conflict", lambda: self.client.update("held", **change)))  # noqa: B023
        self.client.update("held", pinned=True)  # a limit does not concern the holder's work
        self.assertIn("agent-7", self.cli("lease", "ls"))
        holder = harness.Client(str(self.daemon.socket))
        holder.lease_token = token
        self.assertEqual(holder.update("held", name="other", labels={"a": "b"})["name"], "other")
        holder.release_lease("other")

    def test_people_have_names(self):
        self.make("named")
        self.client.exec("named", "true")
        self.assertEqual(self.client.workspace("named")["owner_name"], ME)
        self.assertEqual(self.client.history("named")["execs"][0]["owner_name"], ME)
        lease = self.client.acquire_lease("named", "x", takeover=True)
        self.assertEqual(lease["user"], ME)
        self.assertIn(f"x ({ME}, lease 1)", self.refused("conflict", lambda: self.client.exec("named", "true")))
        holder = harness.Client(str(self.daemon.socket))
        holder.lease_token = lease["token"]
        holder.release_lease("named")

    def test_a_stop_says_who(self):
        self.make("stopped")
        self.client.exec("stopped", "true")
        self.assertNotIn("stopped", self.client.workspace("stopped"))
        self.assertIn("stopped", self.cli("stop", "--all"))
        self.assertEqual(self.client.workspace("stopped")["stopped"]["reason"], f"stopped by {ME}")
        self.assertRegex(self.cli("ls"), f"stopped +by {ME} ")
        self.assertIn(f" s ago: by {ME}\n", self.cli("show", "stopped"))

    def test_a_file_through_standard_streams(self):
        self.make("streams")
        self.daemon.cli("cp", "-", "streams:in.bin", input=bytes(range(256)) * 1000)
        self.assertEqual(self.daemon.cli("cp", "streams:in.bin", "-").stdout, bytes(range(256)) * 1000)
        self.assertEqual(self.daemon.cli("cat", "streams", "in.bin").stdout, bytes(range(256)) * 1000)
        self.assertIn("in.bin", self.cli("exec", "streams", "ls", "-la"))

    def test_unarchive_of_what_is_not_archived_says_so(self):
        self.make("hot")
        self.assertEqual(self.client.unarchive("hot")["notice"], "hot is not archived: nothing was done")
        self.assertEqual(self.cli("unarchive", "hot"), " unchanged hot is not archived: nothing was done\n")
        self.client.archive("hot")
        self.assertEqual(self.cli("unarchive", "hot"), " unarchived hot   all files restored\n")

    def test_losers_go_by_the_setting_and_a_second_best_of_has_names_of_its_own(self):
        self.make("race")

        def run():
            began = self.client.best_of("race", each="echo {i} > fix", test="test $MOORAGE_ATTEMPT = 2", count=2, promote="first-passing")
            return self.client.get_best_of(began["id"], wait_s=60)
        first = run()
        self.assertEqual((first["chosen"], first["promotion"]), (2, "done"), first)
        self.assertEqual([a["name"] for a in first["attempts"]], ["race-1", "race-2"])
        forks = [self.client.workspace(a["workspace"])["state"] for a in first["attempts"]]
        self.assertEqual(forks, ["deleted", "ready"])
        self.assertEqual(self.client.undelete("race-1")["state"], "ready")
        number = int(first["id"].removeprefix("bo_"))
        self.assertEqual([a["name"] for a in run()["attempts"]], [f"race-bo{number + 1}-{n}" for n in (1, 2)])


if __name__ == "__main__":
    unittest.main()
