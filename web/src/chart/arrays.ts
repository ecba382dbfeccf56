/** Arrays of a figure as the server packs them: plain lists, or base64 with a dtype, as Plotly reads both. */

import { decodeBytes } from "../lib/bytes";

const KINDS = {
  i1: Int8Array,
  u1: Uint8Array,
  i2: Int16Array,
  u2: Uint16Array,
  i4: Int32Array,
  u4: Uint32Array,
  f4: Float32Array,
  f8: Float64Array,
} as const;

/** The numbers of a list or packed array; dates stay what they are. Empty for anything else. */
export function unpack(value: unknown): (number | string)[] {
  if (Array.isArray(value)) return value as (number | string)[];
  if (typeof value !== "object" || value === null) return [];
  const { dtype, bdata } = value as { dtype?: string; bdata?: string };
  const Kind = KINDS[dtype as keyof typeof KINDS];
  if (!Kind || typeof bdata !== "string") return [];
  const bytes = decodeBytes(bdata);
  return Array.from(new Kind(bytes.buffer as ArrayBuffer, 0, Math.floor(bytes.byteLength / Kind.BYTES_PER_ELEMENT)));
}
