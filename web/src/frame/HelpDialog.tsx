/** The keyboard map. */

import { SHORTCUTS } from "../lib/keys";
import { setPrefs, usePrefs } from "../lib/prefs";
import { ModalDialog } from "../ui/overlays";

export function HelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <ModalDialog title="Keyboard shortcuts" isOpen onClose={onClose} size="wide">
      <ShortcutList />
      <ShortcutSwitch />
    </ModalDialog>
  );
}

export function ShortcutList() {
  return (
    <div className="shortcuts">
      {SHORTCUTS.map(({ title, keys }) => (
        <section key={title} aria-label={title}>
          <h3 className="panel-title">{title}</h3>
          <dl>
            {keys.map(([key, text]) => (
              <div key={key} className="shortcut">
                <dt>
                  {key.split(" ").map((part) => (
                    <kbd key={part}>{part}</kbd>
                  ))}
                </dt>
                <dd>{text}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </div>
  );
}

export function ShortcutSwitch() {
  const { shortcuts } = usePrefs();
  return (
    <label className="check">
      <input type="checkbox" checked={shortcuts} onChange={(event) => setPrefs({ shortcuts: event.target.checked })} />
      Keyboard shortcuts on
    </label>
  );
}
