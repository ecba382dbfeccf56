/** What every form has at its foot: why it was refused, and the two buttons. */

export function FormError({ error }: { error: Error | null }) {
  return error ? (
    <p className="form-error" role="alert">
      {error.message}
    </p>
  ) : null;
}

interface DialogButtonsProps {
  onCancel: () => void;
  submit: string;
  busy: boolean;
}

export function DialogButtons({ onCancel, submit, busy }: DialogButtonsProps) {
  return (
    <div className="dialog-buttons">
      <button type="button" className="button" onClick={onCancel}>
        Cancel
      </button>
      <button type="submit" className="button primary" disabled={busy}>
        {submit}
      </button>
    </div>
  );
}
