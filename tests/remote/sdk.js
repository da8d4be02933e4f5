// Runs scenarios with a provider's official package: node sdk.js PLACE FILE. PLACE has node_modules. Each line of
// standard input is [scenario, argument]; its answer is a line with {"value": what it returned} or {"error": {...}}.
"use strict";
const { createRequire } = require("module");
const readline = require("readline");
const [, , place, file] = process.argv;
const scenarios = require(file)(createRequire(place + "/package.json"));

async function run(line) {
  const [scenario, argument] = JSON.parse(line);
  try {
    return { value: (await scenarios[scenario](argument)) ?? null };
  } catch (error) {
    return { error: { name: error.name, message: String(error.message), status: error.statusCode ?? null } };
  }
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await run(line)) + "\n");
  }
  process.exit(0); // the packages keep sockets open
})();
