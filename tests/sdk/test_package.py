"""The package as it is installed: typed for mypy --strict, made from one source, built without a network."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "sdk/python"
CALLER = """
import asyncio
import moorage

def plain() -> int:
    with moorage.Client() as client:
        workspace = client.create("https://x.example/a", limits=moorage.Limits(memory_bytes=1 << 30))
        result = workspace.run(["make"], timeout=60).check()
        with workspace.stream("make") as stream:
            for chunk in stream:
                print(chunk.text, chunk.channel)
        with workspace.lease("me") as held:
            held.files.write("a", "b", mode=0o755)
        for entry in workspace.files.list():
            print(entry.name, oct(entry.mode))
        return result.exit_code

async def awaited() -> str:
    async with moorage.AsyncClient() as client:
        workspace = await client.get("fix")
        async with workspace.stream("make") as stream:
            async for chunk in stream:
                print(chunk.text)
        return (await workspace.run("make")).stdout

print(plain() + len(asyncio.run(awaited())))
"""


def run(*argv, **options):
    return subprocess.run([str(word) for word in argv], capture_output=True, text=True, **options)


class Package(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="moorage-sdk-")
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def mypy(self, *words, **options):
        done = run("mypy", "--strict", "--cache-dir", self.place / "cache", *words, **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_plain_client_is_made_from_the_async_one(self):
        done = run(sys.executable, PACKAGE / "make_plain.py", "--check")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_it_installs_without_a_network_and_is_typed_for_its_callers(self):
        source = self.place / "source"
        run("cp", "-r", PACKAGE, source)  # a build writes beside its source
        installed = self.place / "installed"
        done = run(sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-index", "--target", installed, source)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue((installed / "moorage/py.typed").exists())
        present = {str(file.relative_to(PACKAGE)) for file in PACKAGE.glob("moorage/**/*.py")}
        self.assertEqual({str(file.relative_to(installed)) for file in installed.glob("moorage/**/*.py")}, present)
        told = run(sys.executable, "-c", "import moorage; print(moorage.__version__, moorage.Client(), moorage.__file__)", cwd="/",
                   env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"})
        self.assertIn(str(installed), told.stdout, told.stderr)
        caller = self.place / "caller.py"
        caller.write_text(CALLER)
        self.mypy(caller, env={"MYPYPATH": str(installed), "PATH": "/usr/bin:/bin"}, cwd=self.place)

    def test_it_passes_mypy_strict(self):
        self.mypy(PACKAGE / "moorage", *PACKAGE.glob("examples/*.py"), env={"MYPYPATH": str(PACKAGE), "PATH": "/usr/bin:/bin"}, cwd=self.place)

    def test_its_version_is_that_of_the_release(self):
        cmake = (PACKAGE.parents[1] / "CMakeLists.txt").read_text()
        version = run(sys.executable, "-c", "import moorage; print(moorage.__version__)", env={"PYTHONPATH": str(PACKAGE)}).stdout.strip()
        self.assertIn(f"project(moorage VERSION {version} ", cmake)

    def test_its_files_are_small(self):
        for file in PACKAGE.rglob("*.py"):
            lines = file.read_text().splitlines()
            self.assertLessEqual(len(lines), 500, file)
            for number, line in enumerate(lines, 1):
                self.assertLessEqual(len(line), 130, f"{file}:{number}")


if __name__ == "__main__":
    unittest.main()
