import type { Json, Patch } from "./messages";

type Fields = { [name: string]: unknown };

/**
 * Applies a merge patch (RFC 7396). Parts that the patch does not change stay the same objects, so that a comparison
 * with `===` tells whether a part must be redrawn.
 */
export function merge<T>(target: T, patch: Patch): T {
  const result: Fields = { ...(target as Fields) };
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) {
      delete result[name];
    } else if (isObject(value)) {
      const before = result[name];
      result[name] = merge(isObject(before) ? before : {}, value);
    } else {
      result[name] = value;
    }
  }
  return result as T;
}

function isObject(value: unknown): value is { [name: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
