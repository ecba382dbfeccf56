/** Copying text, with the same answer everywhere. */

import { useEffect, useState } from "react";
import { Icon } from "./icons";
import { toast } from "./toast";

async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Over plain http from another machine the clipboard is closed to pages.
    toast("Could not copy: mark the text and copy it with the keyboard.", { isError: true });
    return false;
  }
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <button type="button" className="button" onClick={async () => setCopied(await copyText(text))}>
      <Icon name={copied ? "check" : "copy"} />
      <span aria-live="polite">{copied ? "Copied" : label}</span>
    </button>
  );
}
