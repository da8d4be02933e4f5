// Commands of a sandbox through the official package e2b: node sdk_exec.js PLACE. PLACE has node_modules. Answers each
// line of standard input with one line, after a command has run; the first one once there is a sandbox.
"use strict";
const { createRequire } = require("module");
const readline = require("readline");
const { Sandbox } = createRequire(process.argv[2] + "/package.json")("e2b");

(async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 3600000 });
  console.log("ready");
  for await (const _ of readline.createInterface({ input: process.stdin })) {
    const { exitCode } = await sandbox.commands.run("true");
    console.log(exitCode);
  }
  await sandbox.kill();
  process.exit(0); // the package keeps sockets open
})();
