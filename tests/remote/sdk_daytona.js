// Scenarios for the unmodified npm package @daytonaio/sdk. Its settings come from the environment.
"use strict";
module.exports = (require) => {
  const { Daytona } = require("@daytonaio/sdk");
  const daytona = new Daytona({ useDeprecatedPolling: true });
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const failure = (promise) =>
    promise.then(() => null, (error) => ({ name: error.name, message: error.message, status: error.statusCode }));
  const ids = async (query) => {
    const found = [];
    for await (const sandbox of daytona.list(query)) found.push([sandbox.id, sandbox.state]);
    return found;
  };
  const command = async (sandbox, text, input) => {
    await sandbox.process.createSession("session");
    const { cmdId } = await sandbox.process.executeSessionCommand("session", { command: text, runAsync: true,
      suppressInputEcho: true });
    const output = { stdout: "", stderr: "" };
    const followed = sandbox.process.getSessionCommandLogs("session", cmdId, (data) => (output.stdout += data),
      (data) => (output.stderr += data));
    for (const line of input ?? []) await sandbox.process.sendSessionCommandInput("session", cmdId, line);
    const error = await failure(followed);
    return { cmdId, error, ...output };
  };

  return {
    async commands() {
      const sandbox = await daytona.create({ labels: { a: "b c" }, envVars: { WORD: "word" }, autoStopInterval: 30 });
      const run = (text) => sandbox.process.executeSessionCommand("kept", { command: text });
      await sandbox.process.createSession("kept");
      const values = {
        state: sandbox.state, interval: sandbox.autoStopInterval,
        execute: await sandbox.process.executeCommand("echo out $WORD; echo err >&2; exit 3"),
        place: await sandbox.process.executeCommand("pwd; echo $A", "/tmp", { A: "1" }),
        late: await failure(sandbox.process.executeCommand("sleep 100", undefined, undefined, 1)),
        first: await run("cd /tmp; V=7; echo out; echo err >&2"), second: await run("pwd; echo $V; false"),
      };
      const text = "read a; echo got $a; echo err >&2; sleep 0.2; read b; printf '%s\\0tail' $b; (exit 3)";
      const streamed = await command(sandbox, text, ["one", "two\n"]);
      values.streamed = streamed;
      values.code = (await sandbox.process.getSessionCommand("session", streamed.cmdId)).exitCode;
      values.logs = await sandbox.process.getSessionCommandLogs("session", streamed.cmdId);
      values.ended = await failure(sandbox.process.sendSessionCommandInput("session", streamed.cmdId, "x"));
      values.sessions = (await sandbox.process.listSessions()).map((each) => each.sessionId).sort();
      values.twice = await failure(sandbox.process.createSession("kept"));
      await sandbox.process.deleteSession("kept");
      values.deleted = await failure(sandbox.process.getSession("kept"));
      await sandbox.delete();
      return values;
    },

    async terminal() {
      const sandbox = await daytona.create();
      let output = "";
      const pty = await sandbox.process.createPty({ id: "t", cols: 80, rows: 24, envs: { WORD: "word" },
        onData: (data) => (output += Buffer.from(data)) });
      await pty.resize(99, 33);
      await pty.sendInput("stty size; echo $WORD; exit 5\n");
      const end = await pty.wait();
      await sandbox.delete();
      return { output, end };
    },

    async files() {
      const sandbox = await daytona.create();
      const large = Buffer.from(new Uint8Array(3 << 20).map((_, at) => at % 251));
      await sandbox.fs.uploadFiles([{ source: Buffer.from("a\0\r\nb"), destination: "up/one" },
        { source: large, destination: "/home/daytona/up/large" }]);
      const values = {
        one: (await sandbox.fs.downloadFile("up/one")).toString("hex"),
        large: Buffer.compare(await sandbox.fs.downloadFile("up/large"), large),
        several: (await sandbox.fs.downloadFiles([{ source: "up/one" }, { source: "up/none" }]))
          .map((each) => [each.source, each.error ? each.errorDetails.statusCode : each.result.length]),
        missing: await failure(sandbox.fs.downloadFile("up/none")),
        list: (await sandbox.fs.listFiles("up")).map((each) => [each.name, each.size, each.isDir]),
        info: await sandbox.fs.getFileDetails("up/one"),
      };
      await sandbox.fs.createFolder("up/d", "700");
      await sandbox.fs.moveFiles("up/one", "up/d/two");
      await sandbox.fs.setFilePermissions("up/d/two", { mode: "600" });
      values.moved = (await sandbox.fs.getFileDetails("up/d/two")).permissions;
      await sandbox.fs.deleteFile("up/d", true);
      values.left = (await sandbox.fs.listFiles("up")).map((each) => each.name);
      await sandbox.delete();
      return values;
    },

    async listing() {
      const made = [];
      for (const number of ["1", "2", "3"]) made.push(await daytona.create({ labels: { job: "x y", number } }));
      const values = {
        all: (await ids({ labels: { job: "x y" }, limit: 2 })).map(([id]) => id), made: made.map((each) => each.id),
        one: (await ids({ labels: { job: "x y", number: "2" } })).length,
        none: (await ids({ labels: { job: "z" } })).length,
      };
      await made[0].stop();
      values.stopped = (await ids({ states: ["stopped"] })).map(([id]) => id);
      await made[1].setLabels({ job: "other" });
      values.other = (await ids({ labels: { job: "other" } })).map(([id]) => id);
      values.name = await failure(daytona.create({ name: made[2].name }));
      values.snapshot = await failure(daytona.create({ snapshot: "none" }));
      for (const sandbox of made) await sandbox.delete(60, true);
      return values;
    },

    async life() {
      const sandbox = await daytona.create();
      await sandbox.fs.uploadFile(Buffer.from("kept"), "kept");
      await sandbox.process.createSession("s");
      await sandbox.process.executeSessionCommand("s", { command: "exec sleep 100", runAsync: true });
      const states = [sandbox.state];
      await sandbox.stop();
      states.push(sandbox.state);
      const values = { states, stopped: await failure(sandbox.process.executeCommand("true")),
        again: await failure(sandbox.stop()) };
      await sandbox.start();
      states.push(sandbox.state);
      values.kept = (await sandbox.fs.downloadFile("kept")).toString();
      values.programs = (await sandbox.process.executeCommand("pgrep -c sleep")).result;
      await sandbox.setAutostopInterval(7);
      await sandbox.refreshData();
      values.interval = sandbox.autoStopInterval;
      await sandbox.delete(60, true);
      states.push(sandbox.state);
      values.gone = await failure(daytona.get(sandbox.id));
      return values;
    },

    async volumes() {
      const volume = await daytona.volume.get("trees", true);
      while ((await daytona.volume.get("trees")).state !== "ready") await sleep(50);
      const make = (subpath) => daytona.create({ volumes: [{ volumeId: volume.id, mountPath: "/mnt/trees", subpath }] });
      const run = async (sandbox, text) => (await sandbox.process.executeCommand(`cd /mnt/trees; ${text}`)).result;
      const writer = await make("a/b");
      await run(writer, "echo kept > file");
      const reader = await make("a/b"), other = await make("a/c");
      const values = { name: volume.name, seen: [await run(reader, "cat file"), await run(other, "ls | wc -l")] };
      values.mounts = (await daytona.get(reader.id)).volumes;
      values.id = volume.id;
      values.used = await failure(daytona.volume.delete(volume));
      for (const sandbox of [writer, reader, other]) await sandbox.delete(60, true);
      await daytona.volume.delete(volume);
      values.left = (await daytona.volume.list()).length;
      return values;
    },

    create: async (options) => (await daytona.create(options)).id,
    list: async () => await ids(),
    state: async (id) => (await daytona.get(id)).state,
    stop: async (id) => await (await daytona.get(id)).stop(5),
    async silent_create(ms) {
      return await Promise.race([daytona.create(), sleep(ms).then(() => "silent")]);
    },
    execute: async ([id, text]) => await (await daytona.get(id)).process.executeCommand(text),
    follow: async ([id, text]) => await command(await daytona.get(id), text),
    async follow_again([id, cmdId]) {
      let stdout = "";
      const sandbox = await daytona.get(id);
      await sandbox.process.getSessionCommandLogs("session", cmdId, (data) => (stdout += data), () => {});
      return stdout;
    },
    async wait_stopped([id, ms]) {
      const sandbox = await daytona.get(id);
      const end = Date.now() + ms;
      while (sandbox.state !== "stopped" && Date.now() < end) {
        await sleep(100);
        await sandbox.refreshData();
      }
      return sandbox.state;
    },
  };
};
