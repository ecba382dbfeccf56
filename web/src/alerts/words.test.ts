import { expect, test } from "vitest";
import type { SilenceItem } from "../api/types";
import { silenceWords } from "./words";

const SILENCE: SilenceItem = {
  id: "s",
  rule: "watch",
  run: "r1",
  run_name: "fp16",
  layer: "",
  comment: "",
  created_us: 0,
  until_us: 3_600_000_000,
};

test("a silence says how long it still holds, and a muted run that it is one", () => {
  expect(silenceWords(SILENCE, 600_000)).toBe("Silenced for another 50 min");
  expect(silenceWords(SILENCE, 7_200_000)).toBe("Silenced until now");
  expect(silenceWords({ ...SILENCE, run: "", until_us: null }, 0)).toBe("Silenced until it is lifted");
  expect(silenceWords({ ...SILENCE, rule: "", until_us: null }, 0)).toBe("Run muted until it is lifted");
});
