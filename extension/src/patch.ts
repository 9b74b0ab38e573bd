import type { Json, Patch } from "./messages";

type Fields = { [name: string]: unknown };

/**
 * Applies a merge patch (RFC 7396). What it does not touch stays the same object, so that whoever draws a part can see
 * by `===` that there is nothing to draw.
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
