/** Panels on a page. */

import type { ReactNode } from "react";
import type { PanelInfo } from "../api/types";

/** Panels by section, in the server's order; on a phone the lesser ones are folded away. */
export function PanelGrid({
  panels,
  phone,
  isTitled = false,
  children,
}: {
  panels: PanelInfo[];
  phone: boolean;
  /** Whether the first section has its title too. */
  isTitled?: boolean;
  children: (info: PanelInfo) => ReactNode;
}) {
  const sections = new Map<string, PanelInfo[]>();
  for (const panel of [...panels].sort((a, b) => a.order - b.order)) {
    sections.set(panel.section, [...(sections.get(panel.section) ?? []), panel]);
  }
  return [...sections].map(([section, infos]) => {
    const folded = phone ? infos.filter((info) => info.folded_on_phone) : [];
    const open = infos.filter((info) => !folded.includes(info));
    const title = section.charAt(0).toUpperCase() + section.slice(1);
    return (
      <section key={section} aria-label={title}>
        {(isTitled || section !== panels[0]?.section) && <h2 className="section-title">{title}</h2>}
        {open.length > 0 && <div className="grid">{open.map(children)}</div>}
        {folded.map((info) => (
          <details key={info.id} className="folded">
            <summary>{info.title}</summary>
            {children(info)}
          </details>
        ))}
      </section>
    );
  });
}
