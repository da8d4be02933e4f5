"""Only archived data is removed: never concurrent writes, nor work done after the archive."""

import io
import pathlib
import shutil
import threading
import time
import unittest

import harness
import raw_api


class Safety(harness.TestCase):
    def layer(self):
        layers = sorted((self.daemon.store / "layers").iterdir(), key=lambda p: int(p.name[3:]))
        return layers[-1]

    def test_outside_writes_during_an_archive_are_detected(self):
        self.client.create(repo_url=self.url, name="busied")
        self.client.exec("busied", "for i in $(seq 40); do head -c 4M /dev/urandom > random-$i; done; echo first > log")
        self.client.stop("busied")
        log = self.layer() / "tree/upper/log"
        stop = threading.Event()

        def write():
            while not stop.is_set():
                with open(log, "a") as file:
                    file.write("more\n")
                time.sleep(0.01)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.archive("busied")
            self.assertIn("wrote", refused.exception.message)
            self.assertEqual(self.client.workspace("busied")["state"], "ready")
            with self.assertRaises(Exception):
                with open(self.daemon.directory / "out", "wb") as file:
                    self.client.export("busied", file)
        finally:
            stop.set()
            writer.join()
        self.client.archive("busied")
        self.assertIn(b"first\nmore\n", self.client.exec("busied", "cat log").stdout)
        self.client.delete("busied", purge=True)

    def test_an_older_state_db_and_its_archive_lose_no_work(self):
        """A backup of state.db and of the archives is restored; the layers stayed."""
        self.client.create(repo_url=self.url, name="returned")
        self.client.exec("returned", "echo old > kept")
        archive = pathlib.Path(self.client.archive("returned")["archive"]["file"])
        self.daemon.stop()
        backup = self.daemon.directory / "backup"
        backup.mkdir()
        for file in [*self.daemon.store.glob("state.db*"), archive]:
            shutil.copy(file, backup)
        self.daemon.start()
        self.client.exec("returned", "echo new > kept", sync=True)
        layer = self.layer()
        self.daemon.stop()
        for file in self.daemon.store.glob("state.db*"):
            file.unlink()
        for file in backup.glob("state.db*"):
            shutil.copy(file, self.daemon.store)
        shutil.copy(backup / archive.name, archive)
        self.daemon.start()
        self.assertEqual(self.client.workspace("returned")["state"], "archived")
        self.assertEqual((layer / "tree/upper/kept").read_text(), "new\n")
        for verb in (lambda: self.client.unarchive("returned"), lambda: self.client.exec("returned", "true")):
            with self.assertRaises(raw_api.ApiError) as refused:
                verb()
            self.assertEqual(refused.exception.code, "conflict")
            self.assertIn(str(layer), refused.exception.message)
        self.client.doctor(fix=True)
        found = [f["text"] for f in self.client.doctor()["findings"] if f["severity"] == "error"]
        self.assertEqual(len([f for f in found if str(layer) in f]), 1, found)
        self.assertEqual((layer / "tree/upper/kept").read_text(), "new\n")
        layer.rename(self.daemon.directory / "aside")
        self.assertEqual(self.client.exec("returned", "cat kept").stdout, b"old\n")
        self.client.delete("returned", purge=True)

    def test_a_used_up_budget_does_not_stop_export_and_import(self):
        self.client.create(repo_url=self.url, name="spent", pre_stop="echo stopping")
        for _ in range(3):
            self.client.exec("spent", "echo kept > kept")
        self.client.update("spent", max_execs=2)
        out = io.BytesIO()
        self.client.export("spent", out)
        events = len([e for e in self.client.events() if e["kind"] == "exec.state"])
        self.client.import_(out.getvalue(), name="came")
        self.assertEqual(len([e for e in self.client.events() if e["kind"] == "exec.state"]), events)
        history = self.client.history("came")["execs"]
        self.assertEqual([e.get("hook") for e in history], [e.get("hook") for e in self.client.history("spent")["execs"]])
        self.assertEqual({e["state"] for e in history}, {"exited"})
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.exec("came", "true")
        self.assertIn("max_execs", refused.exception.message)
        self.assertEqual(self.client.read_file("came", "kept"), b"kept\n")
        for name in ("spent", "came"):
            self.client.delete(name, purge=True)


if __name__ == "__main__":
    unittest.main()
