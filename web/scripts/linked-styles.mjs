// Writes the rules that Plotly and React Aria would inject as style elements into public/linked, so that the page can link them.
// The rules are read out of the installed packages at every build: nothing of theirs is committed, and an update cannot go stale.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Window } from "happy-dom";

const require = createRequire(import.meta.url);
const folder = fileURLToPath(new URL("../public/linked/", import.meta.url));

/** Loads Plotly in a throwaway window and collects the rules it inserts while loading. */
async function plotlyRules() {
  const window = new Window({
    settings: { enableJavaScriptEvaluation: true, suppressInsecureJavaScriptEnvironmentWarning: true },
  });
  const rules = [];
  const create = window.document.createElement.bind(window.document);
  window.document.createElement = (name, ...rest) => {
    const element = create(name, ...rest);
    if (name === "style") {
      // insertRule(rule, 0) puts every rule in front of the former ones: the same order as in the browser.
      Object.defineProperty(element, "sheet", { value: { insertRule: (rule) => rules.unshift(rule) } });
    }
    return element;
  };
  window.URL.createObjectURL ??= () => "";
  window.eval(readFileSync(require.resolve("plotly.js-cartesian-dist-min"), "utf8"));
  await window.happyDOM.close();
  return rules;
}

/** The text that usePress would put into its style element. */
function pressableRules() {
  const aria = createRequire(require.resolve("react-aria-components/package.json"));
  const entry = aria
    .resolve("react-aria")
    .replace(/react-aria[/\\]dist[/\\].*$/, "react-aria/dist/private/interactions/usePress.mjs");
  const source = readFileSync(entry, "utf8");
  const attribute = /PRESSABLE_ATTRIBUTE = '([^']+)'/.exec(source)?.[1];
  const template = /style\.textContent = `([\s\S]*?)`/.exec(source)?.[1];
  if (!attribute || !template?.includes("PRESSABLE_ATTRIBUTE")) {
    throw new Error(`usePress of React Aria no longer looks as expected: find where its style element went (${entry})`);
  }
  return template.replace(/\$\{[^}]+\}/g, attribute).trim();
}

const rules = await plotlyRules();
if (rules.length < 40 || !rules.some((rule) => rule.includes(".modebar"))) {
  throw new Error(
    `Plotly inserted ${rules.length} global rules, expected some 60 with its mode bar's: see how it adds them now`,
  );
}
mkdirSync(folder, { recursive: true });
writeFileSync(`${folder}plotly-global.css`, `${rules.join("\n")}\n`);
writeFileSync(`${folder}pressable.css`, `${pressableRules()}\n`);
