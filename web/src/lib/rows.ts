/** j and k through the rows of a list: whatever carries `data-row` in it. */

import { useKeys } from "./keys";

export function useRowKeys(list: { current: HTMLElement | null }): void {
  const move = (by: number) => {
    const links = [...(list.current?.querySelectorAll<HTMLElement>("[data-row]") ?? [])];
    const at = links.indexOf(document.activeElement as HTMLElement);
    links[Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
  };
  useKeys({ j: () => move(1), k: () => move(-1) });
}
