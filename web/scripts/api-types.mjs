// Writes src/api/schema.d.ts from openapi.json; with --check it only says whether the committed file is current.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";

const source = new URL("../openapi.json", import.meta.url);
const target = fileURLToPath(new URL("../src/api/schema.d.ts", import.meta.url));

// Defaults are always filled in by the server, so readers need no `?`; requests give what they want to give.
const tree = await openapiTS(source, { defaultNonNullable: false, alphabetize: true });
const text = `// Generated from openapi.json by \`npm run types\`. Do not edit.\n\n${astToString(tree)}`;

if (process.argv.includes("--check")) {
  let present = "";
  try {
    present = readFileSync(target, "utf8");
  } catch {
    // A missing file is a stale file.
  }
  if (present !== text) {
    console.error("src/api/schema.d.ts does not fit openapi.json: run `npm run types` and commit the result");
    process.exit(1);
  }
} else {
  writeFileSync(target, text);
}
