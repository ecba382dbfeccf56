/** Asks before something is deleted: the harmless answer is the one under Enter. */

import type { ReactNode } from "react";
import { FormError } from "./forms";
import { ModalDialog } from "./overlays";

interface DeleteDialogProps {
  /** What it is, as it stands in title and button: `run`. */
  what: string;
  /** What becomes of it. */
  children: ReactNode;
  remove: { error: Error | null; isPending: boolean };
  onDelete: () => void;
  onClose: () => void;
}

export function DeleteDialog({ what, children, remove, onDelete, onClose }: DeleteDialogProps) {
  return (
    <ModalDialog title={`Delete this ${what}?`} isOpen onClose={onClose} role="alertdialog">
      <div className="form">
        <p>{children}</p>
        <FormError error={remove.error} />
        <div className="dialog-buttons">
          {/* biome-ignore lint/a11y/noAutofocus: the harmless answer is the one under Enter */}
          <button type="button" className="button" onClick={onClose} autoFocus>
            Cancel
          </button>
          <button type="button" className="button button-danger" disabled={remove.isPending} onClick={onDelete}>
            Delete {what}
          </button>
        </div>
      </div>
    </ModalDialog>
  );
}
