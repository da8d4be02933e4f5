// Parses docs/openapi.yaml with two parsers that refuse duplicate keys, and prints both results.
"use strict";
const { createRequire } = require("module");
const fs = require("fs");
const [, , place, file] = process.argv;
const from = createRequire(place + "/package.json");
const text = fs.readFileSync(file, "utf8");
const read = { "js-yaml": from("js-yaml").safeLoad(text), yaml: from("yaml").parse(text) };
process.stdout.write(JSON.stringify(read));
