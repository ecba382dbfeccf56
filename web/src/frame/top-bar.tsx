/** The slots of the top bar, which the page below fills: where one is, and whether it is live. */

import { createContext, type ReactNode, useContext } from "react";
import { createPortal } from "react-dom";
import { Link } from "../lib/router";

export interface Slots {
  crumbs: HTMLElement | null;
  pill: HTMLElement | null;
}

export const SlotsContext = createContext<Slots>({ crumbs: null, pill: null });

export interface Crumb {
  text: string;
  to?: string;
}

export function TopBarContent({ crumbs, pill }: { crumbs: Crumb[]; pill?: ReactNode }) {
  const slots = useContext(SlotsContext);
  return (
    <>
      {slots.crumbs &&
        createPortal(
          <ol className="crumbs">
            {crumbs.map(({ text, to }, at) => (
              <li key={text} aria-current={at === crumbs.length - 1 ? "page" : undefined}>
                {to ? <Link to={to}>{text}</Link> : <span title={text}>{text}</span>}
              </li>
            ))}
          </ol>,
          slots.crumbs,
        )}
      {slots.pill && pill && createPortal(pill, slots.pill)}
    </>
  );
}
