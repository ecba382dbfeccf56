/** Small hooks over browser interfaces. */

import { type RefObject, useEffect, useState, useSyncExternalStore } from "react";

export function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      const media = matchMedia(query);
      media.addEventListener("change", listener);
      return () => media.removeEventListener("change", listener);
    },
    () => matchMedia(query).matches,
  );
}

/** Below the width at which the rail becomes a bar at the bottom. */
export function usePhone(): boolean {
  return useMedia("(max-width: 767px)");
}

/** The present time, renewed every `everyMs`. */
export function useNow(everyMs = 1000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** Width of an element's content box in CSS pixels; 0 before it is measured. */
export function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const target = element.current;
    if (!target) return;
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.round(entry.contentRect.width)));
    observer.observe(target);
    return () => observer.disconnect();
  }, [element]);
  return width;
}

/** Height of an element's content box in CSS pixels; 0 before it is measured. */
export function useHeight(element: HTMLElement | null): number {
  const [height, setHeight] = useState(0);
  useEffect(() => {
    if (!element) return;
    const observer = new ResizeObserver(([entry]) => entry && setHeight(Math.floor(entry.contentRect.height)));
    observer.observe(element);
    return () => observer.disconnect();
  }, [element]);
  return height;
}

/** Whether an element is on screen or within 200 px of it. */
export function useVisible(element: RefObject<HTMLElement | null>): boolean {
  const [visible, setVisible] = useState(false);
  useEffect(() => {
    const target = element.current;
    if (!target) return;
    const observer = new IntersectionObserver(([entry]) => entry && setVisible(entry.isIntersecting), {
      rootMargin: "200px",
    });
    observer.observe(target);
    return () => observer.disconnect();
  }, [element]);
  return visible;
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · halfscope` : "halfscope";
  }, [title]);
}

/** A value once it has not changed for `delayMs`. */
export function useDebounced<T>(value: T, delayMs: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delayMs);
    return () => clearTimeout(timer);
  }, [value, delayMs]);
  return settled;
}
