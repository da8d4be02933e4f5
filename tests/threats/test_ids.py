"""Host ids of sandboxes and of files, while the configuration changes: row 76."""

import json
import pathlib
import unittest

from threat import Threats, harness, threat

FIRST = 1_100_000_000
RANGE = 65536


def first_id(pid):
    """Host id of the sandbox's id 0, from its process 1."""
    outside = int(pathlib.Path(f"/proc/{pid}/uid_map").read_text().split()[1])
    return outside or int(next(line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid:")).split()[1]) - 1000


@unittest.skipIf(harness.BACKEND == "docker-userns", "the engine gives all its sandboxes one range")
class Ids(Threats):
    settings = {"ids.sandbox_first_id": FIRST, "ids.sandbox_slots": 8}

    def configure(self, **ids):
        settings = json.loads(self.daemon.config.read_text())
        settings["ids"].update(ids)
        self.daemon.config.write_text(json.dumps(settings))
        self.daemon.kill()

    def first_of(self, name):
        return first_id(self.daemon.sandbox_pids(name)["init"])

    @threat(76, "H", "change the pool of host ids while sandboxes live, so that a new sandbox gets the ids of a live one",
            "ids are in the sandbox's row; a new one gets a range that overlaps none of them; other ids on disk are refused at start, with instructions",
            "the slot of the new sandbox, computed from the changed configuration, is the range of a live one")
    def test_a_new_sandbox_never_has_the_ids_of_a_living_one(self):
        self.client.create(repo_url=self.url, name="second")
        living = {}
        for name in ("jail", "second"):
            self.client.exec(name, "true")
            living[name] = self.first_of(name)
        self.assertEqual(sorted(living.values()), [FIRST, FIRST + RANGE])
        for shift in (-RANGE, RANGE, -40_000, 1_000):
            with self.subTest(shift=shift):
                if shift == -RANGE:
                    self.assertIn(FIRST + shift + 2 * RANGE, living.values())
                self.configure(sandbox_first_id=FIRST + shift)
                self.daemon.start()
                for name, first in living.items():
                    self.assertEqual(self.first_of(name), first, "it goes on")
                    self.client.write_file(name, "written", b"by the host\n")
                    self.assertEqual(self.client.exec(name, "echo by the user >> written; cat written").stdout, b"by the host\nby the user\n")
                self.client.create(repo_url=self.url, name="new")
                self.client.exec("new", "true")
                new = self.first_of("new")
                for first in living.values():
                    self.assertGreaterEqual(abs(new - first), RANGE)
                self.client.delete("new", purge=True)
        self.client.delete("second", purge=True)

    def test_other_ids_on_disk_are_refused_at_start_with_instructions(self):
        self.client.exec("jail", "echo kept > kept")
        before = next(int(s["value"]) for s in self.client.config() if s["name"] == "ids.disk_first_id")
        self.configure(disk_first_id=before - 1_000_000)
        with self.assertRaises(AssertionError) as refused:
            self.daemon.start()
        self.assertIn(f"set ids.disk_first_id: {before}", str(refused.exception))
        self.configure(disk_first_id=before)
        self.daemon.start()
        self.assertEqual(self.client.exec("jail", "cat kept").stdout, b"kept\n")


if __name__ == "__main__":
    unittest.main()
