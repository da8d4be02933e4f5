// Validates recorded answers against the strict document, and mutants of each: a field that the document does not know, in
// every object of the answer, one at a time. Prints the answers that are invalid and the mutants that are valid.
//   node mutants.js PLACE DOCUMENT ANSWERS: ANSWERS is a list of {method, path, status, answer}.
"use strict";
const { createRequire } = require("module");
const fs = require("fs");
const [, , place, documentFile, answersFile] = process.argv;
const from = createRequire(place + "/package.json");
const document = JSON.parse(fs.readFileSync(documentFile, "utf8"));
const Ajv = from("ajv");
const ajv = new Ajv({ strict: false, allErrors: true, logger: false, validateFormats: false });
ajv.addSchema({ $id: "api", ...document });

const escaped = (key) => key.replace(/~/g, "~0").replace(/\//g, "~1");
const validators = new Map();
function validatorOf({ method, path, status }) {
  let pointer = ["paths", path, method, "responses", status];
  let response = document.paths[path][method].responses[status];
  if (response.$ref) {
    pointer = response.$ref.slice(2).split("/");
    response = pointer.reduce((node, key) => node[key], document);
  }
  if (!response.content || !response.content["application/json"]) return null;
  const name = "api#/" + [...pointer, "content", "application/json", "schema"].map(escaped).map(encodeURIComponent).join("/");
  if (!validators.has(name)) validators.set(name, ajv.compile({ $ref: name }));
  return validators.get(name);
}

function* objectsIn(value, at = "") {
  if (value === null || typeof value !== "object") return;
  if (!Array.isArray(value)) yield [value, at || "/"];
  for (const [key, below] of Object.entries(value)) yield* objectsIn(below, at + "/" + (Array.isArray(value) ? "*" : key));
}

const result = { answers: 0, mutants: 0, undocumented: [], invalid: [], uncaught: new Set() };
for (const one of JSON.parse(fs.readFileSync(answersFile, "utf8"))) {
  const validate = validatorOf(one);
  const what = `${one.method} ${one.path} ${one.status}`;
  if (!validate) {
    result.undocumented.push(what);
    continue;
  }
  result.answers += 1;
  if (!validate(one.answer)) {
    result.invalid.push(`${what}: ${ajv.errorsText(validate.errors)}`);
    continue;
  }
  for (const [object, at] of objectsIn(one.answer)) {
    result.mutants += 1;
    object.mutant_field = 1;
    if (validate(one.answer)) result.uncaught.add(`${what} ${at}`);
    delete object.mutant_field;
  }
}
process.stdout.write(JSON.stringify({ ...result, uncaught: [...result.uncaught].sort() }));
