"""An import accepts every complete export: with any number of commands, any host's limits, the largest number of layers."""

import io
import json
import tarfile
import unittest

import harness
import raw_api
import trees

COMMANDS = 250_001
LAYERS = 60


def exported(client, name):
    out = io.BytesIO()
    client.export(name, out)
    return out.getvalue()


def with_manifest(members, change):
    """The same archive with a changed manifest."""
    def changed(member, content):
        if member.name != "manifest.json":
            return content
        manifest = json.loads(content)
        change(manifest)
        return json.dumps(manifest).encode()
    return [(member, changed(member, content)) for member, content in members]


class Whole(harness.TestCase):
    def test_a_workspace_with_a_quarter_of_a_million_commands_is_exported_and_imported(self):
        self.client.create(repo_url=self.url, name="long")
        self.client.exec("long", "true")
        members = [(m, c) for m, c in trees.members_of(exported(self.client, "long")) if not m.name.startswith("journal/")]
        one = json.loads(next(c for m, c in members if m.name == "execs.jsonl").splitlines()[0])
        many = b"".join(json.dumps(one | {"id": f"ex_{n}"}).encode() + b"\n" for n in range(1, COMMANDS + 1))
        archive = trees.archive_of([(m, many if m.name == "execs.jsonl" else c) for m, c in members])
        self.client.import_(archive, name="came")
        again = dict((m.name, c) for m, c in trees.members_of(exported(self.client, "came")))
        self.assertEqual(again["execs.jsonl"].count(b"\n"), COMMANDS)
        for name in ("long", "came"):
            self.client.delete(name, purge=True)

    def test_a_workspace_with_the_most_layers_of_an_import_starts(self):
        self.client.create(repo_url=self.url, name="flat")
        self.client.write_file("flat", "of-0", b"0")
        members = trees.members_of(exported(self.client, "flat"))

        def deepen(manifest):
            manifest["layers"] = [f"ly_{number + 1}" for number in range(LAYERS)]
        deep = with_manifest(members, deepen)
        for number in range(1, LAYERS):
            for part in ("tree", "home", "system"):
                top = tarfile.TarInfo(f"layers/{number}/{part}")
                top.type, top.mode, top.uid, top.gid = tarfile.DIRTYPE, 0o755, 1000, 1000
                deep.append((top, b""))
                if part == "tree":
                    file = tarfile.TarInfo(f"layers/{number}/tree/of-{number}")
                    file.uid = file.gid = 1000
                    deep.append((file, b"%d" % number))
        self.client.import_(trees.archive_of(deep), name="deep")
        out = self.client.exec("deep", "cat of-* | tr -d '\\n' | wc -c; ls -d of-* | wc -l; cat README.md")
        self.assertEqual(out.exit_code, 0, out.stderr.decode())
        self.assertEqual(out.stdout.split()[:2], [b"%d" % sum(len(str(n)) for n in range(LAYERS)), b"%d" % LAYERS])
        self.client.snapshot("deep", name="later")
        self.client.fork("deep", names=["branched"], snapshot="later")
        self.assertEqual(self.client.exec("branched", "ls -d of-* | wc -l").stdout.strip(), b"%d" % LAYERS)
        for name in ("branched", "deep", "flat"):
            self.client.delete(name, purge=True)


class OddHost(harness.TestCase):
    """Its defaults are the minimum values of the configuration."""
    settings = {"sandbox.cpus": 0.01, "sandbox.memory_bytes": 16 << 20, "sandbox.pids": 16}

    def test_an_export_of_such_a_host_is_imported(self):
        self.client.create(repo_url=self.url, name="least")
        made = self.client.import_(exported(self.client, "least"), name="came")
        self.assertEqual(made["limits"]["cpus"], 0.01)
        for name in ("least", "came"):
            self.client.delete(name, purge=True)


if __name__ == "__main__":
    unittest.main()
