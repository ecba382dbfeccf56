/** Silencing: what, for how long, and why. Until it ends nothing is sent for what matches; pages go on showing it. */

import { type FormEvent, useState } from "react";
import type { SilenceBody } from "../api/types";
import { formatTime } from "../lib/format";
import { Choice } from "../ui/choice";
import { DialogButtons, FormError } from "../ui/forms";
import { ModalDialog } from "../ui/overlays";
import { toast } from "../ui/toast";
import { useSilence } from "./queries";

/** What can be silenced from where the dialog was opened; empty: not that. */
export interface SilenceSubject {
  rule: string;
  ruleName: string;
  run: string;
  runName: string;
  layer: string;
}

export const HOUR_S = 3600;
/** No end: until somebody lifts it. */
const NO_END = 0;
const SPANS = [
  { value: HOUR_S, text: "1 h" },
  { value: 8 * HOUR_S, text: "8 h" },
  { value: 24 * HOUR_S, text: "1 day" },
  { value: 7 * 24 * HOUR_S, text: "1 week" },
  { value: NO_END, text: "No end" },
] as const;

interface SilenceDialogProps {
  subject: SilenceSubject;
  /** What is ticked at first. */
  parts: ("rule" | "run" | "layer")[];
  title: string;
  onClose: () => void;
}

export function SilenceDialog({ subject, parts, title, onClose }: SilenceDialogProps) {
  const [chosen, setChosen] = useState(parts);
  const [seconds, setSeconds] = useState<number>(HOUR_S);
  const [comment, setComment] = useState("");
  const silence = useSilence();
  const body: SilenceBody = {
    rule: chosen.includes("rule") ? subject.rule : "",
    run: chosen.includes("run") ? subject.run : "",
    layer: chosen.includes("layer") ? subject.layer : "",
    comment: comment.trim(),
    for_s: seconds === NO_END ? null : seconds,
    everything: false,
  };
  const isEverything = !body.rule && !body.run && !body.layer;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isEverything) return;
    silence.mutate(body, {
      onSuccess: () => {
        toast("Silenced. It is listed under Firing, where it can be lifted.");
        onClose();
      },
    });
  };
  const options = (
    [
      ["rule", "The rule", subject.ruleName],
      ["run", "On the run", subject.runName],
      ["layer", "For the layer", subject.layer],
    ] as const
  ).filter(([, , name]) => name !== "");
  return (
    <ModalDialog title={title} isOpen onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <p className="muted">Nothing is sent for what matches all of this. The pages go on showing it.</p>
        <fieldset className="form">
          <legend className="sr-only">What is silenced</legend>
          {options.map(([part, word, name]) => (
            <label key={part} className="check">
              <input
                type="checkbox"
                checked={chosen.includes(part)}
                onChange={(event) =>
                  setChosen(event.target.checked ? [...chosen, part] : chosen.filter((other) => other !== part))
                }
              />
              <span className="silence-part">
                {word} <strong>{name}</strong>
              </span>
            </label>
          ))}
        </fieldset>
        <Choice label="For" value={seconds} options={SPANS} onChange={setSeconds} />
        <p className="muted" role="status">
          {seconds === NO_END
            ? "Until it is lifted by hand."
            : `Until ${formatTime((Date.now() + seconds * 1000) * 1000).text}.`}
        </p>
        <label className="field">
          <span>Comment</span>
          <input value={comment} maxLength={500} onChange={(event) => setComment(event.target.value)} />
        </label>
        {isEverything && (
          <p className="form-error" role="alert">
            Tick at least one: nothing ticked would silence every alert there is.
          </p>
        )}
        <FormError error={silence.error} />
        <DialogButtons onCancel={onClose} submit="Silence" busy={silence.isPending || isEverything} />
      </form>
    </ModalDialog>
  );
}
