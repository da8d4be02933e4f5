// Runs one scenario with a provider's official package: node sdk.js PLACE FILE SCENARIO [JSON], and prints one line of
// JSON: {"value": what it returned} or {"error": {name, message, status}}. PLACE has node_modules.
"use strict";
const { createRequire } = require("module");
const [, , place, file, scenario, argument] = process.argv;
const scenarios = require(file)(createRequire(place + "/package.json"));

function print(line) {
  // The packages keep sockets open, so the process does not end by itself.
  process.stdout.write(JSON.stringify(line) + "\n", () => process.exit(0));
}

scenarios[scenario](argument === undefined ? undefined : JSON.parse(argument)).then(
  (value) => print({ value: value === undefined ? null : value }),
  (error) => print({ error: { name: error.name, message: String(error.message), status: error.statusCode ?? null } }),
);
