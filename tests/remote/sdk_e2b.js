// Scenarios for the unmodified npm package e2b. Its settings come from the environment.
"use strict";
module.exports = (require) => {
  const { Sandbox } = require("e2b");
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const failure = (promise) =>
    promise.then(() => null, (error) => ({ name: error.name, message: error.message, exitCode: error.exitCode }));
  const silent = (promise, ms) => Promise.race([promise, sleep(ms).then(() => "silent")]);

  return {
    async commands() {
      const sandbox = await Sandbox.create({ metadata: { a: "b c" }, envs: { WORD: "word" }, timeoutMs: 60000 });
      const streamed = { stdout: "", stderr: "" };
      const result = await sandbox.commands.run("echo out $WORD; echo err >&2; id -un; pwd", {
        onStdout: (data) => (streamed.stdout += data),
        onStderr: (data) => (streamed.stderr += data),
      });
      const root = await sandbox.commands.run("id -u", { user: "root", cwd: "/", envs: { A: "1" } });
      const cat = await sandbox.commands.run("cat; echo end", { background: true, stdin: true });
      await sandbox.commands.sendStdin(cat.pid, "first\n");
      const listed = (await sandbox.commands.list()).map((each) => each.pid);
      await sandbox.commands.closeStdin(cat.pid);
      const sleeper = await sandbox.commands.run("sleep 100", { background: true });
      const killed = [await sandbox.commands.kill(sleeper.pid), await failure(sleeper.wait())];
      const values = {
        result, streamed, root, cat: (await cat.wait()).stdout, listed: listed.includes(cat.pid), killed,
        exit: await failure(sandbox.commands.run("exit 3")),
        directory: await failure(sandbox.commands.run("true", { cwd: "/nowhere" })),
        program: await sandbox.commands.kill(99999),
        late: await failure(sandbox.commands.run("sleep 100", { timeoutMs: 300 })),
      };
      await sandbox.kill();
      return values;
    },

    async terminal() {
      const sandbox = await Sandbox.create();
      let output = "";
      const pty = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => (output += Buffer.from(data)) });
      await sandbox.pty.resize(pty.pid, { cols: 99, rows: 33 });
      await sandbox.pty.sendInput(pty.pid, Buffer.from("stty size; tty; exit 7\n"));
      const end = await failure(pty.wait());
      await sandbox.kill();
      return { output, end };
    },

    async files() {
      const sandbox = await Sandbox.create();
      await sandbox.files.write("a/one", "text");
      const large = new Uint8Array(3 << 20).map((_, at) => at % 251);
      await sandbox.files.write("a/large", large.buffer);
      await sandbox.files.write([{ path: "/home/user/m1", data: "1" }, { path: "/home/user/m2", data: "" }]);
      await sandbox.files.write("packed", "x".repeat(100000), { gzip: true, useOctetStream: true });
      const read = await sandbox.files.read("a/large", { format: "bytes" });
      const values = {
        text: await sandbox.files.read("a/one"), large: Buffer.compare(Buffer.from(read), Buffer.from(large)),
        empty: await sandbox.files.read("m2"), packed: (await sandbox.files.read("packed")).length,
        list: (await sandbox.files.list("/home/user", { depth: 2 })).map((each) => [each.path, each.type]),
        info: await sandbox.files.getInfo("a/one"),
        exists: [await sandbox.files.exists("a"), await sandbox.files.exists("b")],
        made: [await sandbox.files.makeDir("d/e"), await sandbox.files.makeDir("d/e")],
        renamed: (await sandbox.files.rename("a/one", "f/two")).path,
        missing: await failure(sandbox.files.read("nothing")), directory: await failure(sandbox.files.read("a")),
        user: await failure(sandbox.files.read("a", { user: "nobody" })),
        root: await failure(sandbox.files.write("/root/f", "x")),
      };
      await sandbox.files.remove("a");
      values.removed = await sandbox.files.exists("a");
      values.signed = await (await fetch(await sandbox.downloadUrl("f/two"))).text();
      const forged = (await sandbox.downloadUrl("f/two")).replace(/signature=.../, "signature=xyz");
      values.unsigned = (await fetch(forged)).status;
      await sandbox.kill();
      return values;
    },

    async listing() {
      const made = [];
      for (const number of [1, 2, 3]) {
        made.push(await Sandbox.create({ metadata: { job: "x=1 & y", number: String(number) } }));
      }
      const pages = [];
      const list = Sandbox.list({ query: { metadata: { job: "x=1 & y" } }, limit: 2 });
      while (list.hasNext) pages.push((await list.nextItems()).map((each) => each.metadata.number));
      const one = await Sandbox.list({ query: { metadata: { job: "x=1 & y", number: "2" } } }).nextItems();
      const none = await Sandbox.list({ query: { metadata: { job: "other" } } }).nextItems();
      await made[0].pause();
      const paused = await Sandbox.list({ query: { state: ["paused"] } }).nextItems();
      for (const sandbox of made) await sandbox.kill();
      return { pages, one: one.length, none: none.length, paused: paused.map((each) => each.metadata.number) };
    },

    async life() {
      const sandbox = await Sandbox.create({ timeoutMs: 30000 });
      const ends = async () => (await sandbox.getInfo()).endAt.getTime() - Date.now();
      const before = await ends();
      await sandbox.setTimeout(200000);
      const after = await ends();
      await sandbox.connect({ timeoutMs: 1000 });
      const counter = await sandbox.commands.run("while :; do echo >>ticks; sleep 0.02; done", { background: true });
      await sandbox.files.write("kept", "kept");
      const paused = [await sandbox.pause(), await sandbox.pause(), await sandbox.isRunning(),
        await failure(counter.wait())];
      const connected = await Sandbox.connect(sandbox.sandboxId);
      const ticks = await connected.files.read("ticks");
      await sleep(200);
      const again = await connected.commands.connect(counter.pid);
      const values = {
        before, after, never_shorter: await ends(), paused, kept: await connected.files.read("kept"),
        ticks: (await connected.files.read("ticks")).length > ticks.length, killed_program: await again.kill(),
      };
      values.killed = [await connected.kill(), await connected.kill(), await connected.isRunning()];
      values.gone = [await failure(connected.getInfo()), await failure(Sandbox.connect(sandbox.sandboxId)),
        await failure(connected.commands.run("true"))];
      return values;
    },

    async resumed_twice() {
      const sandbox = await Sandbox.create();
      const written = [];
      for (const name of ["first", "second"]) {
        await sandbox.files.write(name, name);
        await sandbox.pause();
        await sandbox.connect();
        written.push(await sandbox.files.exists("first"), await sandbox.files.exists("second"));
      }
      await sandbox.kill();
      return written;
    },

    create: async (options) => (await Sandbox.create(options)).sandboxId,
    create_from: async (template) => (await Sandbox.create(template)).sandboxId,
    list: async () => (await Sandbox.list().nextItems()).map((each) => [each.sandboxId, each.state]),
    info: async (id) => await Sandbox.getInfo(id),
    kill: async (id) => await Sandbox.kill(id),
    pause: async (id) => await Sandbox.pause(id),
    silent_create: async (ms) => await silent(Sandbox.create(), ms),
    async run([id, command]) {
      let stdout = "";
      const sandbox = await Sandbox.connect(id);
      const error = await failure(sandbox.commands.run(command, { onStdout: (data) => (stdout += data) }));
      return { stdout, error, running: await sandbox.isRunning() };
    },
    async reattach([id, command, file]) {
      const sandbox = await Sandbox.connect(id);
      let stdout = "";
      const handle = await sandbox.commands.run(command, { background: true });
      const error = await failure(handle.wait());
      const again = await sandbox.commands.connect(handle.pid, { onStdout: (data) => (stdout += data) });
      await sandbox.files.write(file, "");
      const end = await again.wait();
      return { error, stdout, exitCode: end.exitCode };
    },
    async read([id, path]) {
      const sandbox = await Sandbox.connect(id);
      const before = Date.now();
      const text = await sandbox.files.read(path);
      return { length: text.length, seconds: (Date.now() - before) / 1000 };
    },
  };
};
