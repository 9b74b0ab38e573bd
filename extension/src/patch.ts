export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };
export type Patch = { [name: string]: Json };

type Fields = { [name: string]: unknown };

/**
 * Applies a merge patch (RFC 7396). Parts that the patch does not change stay the same objects, so that a comparison
 * with `===` tells whether a part must be redrawn.
 */
export function merge<T>(target: T, patch: Patch): T {
  const result = withOwnFields(target);
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

/**
 * Copies data, at every depth, into objects that have no other fields than its own: users choose the names of metrics,
 * such as `constructor`.
 */
export function copyFields<T>(data: T): T {
  if (!isObject(data)) return data;
  const result = withOwnFields(data);
  for (const [name, value] of Object.entries(result)) result[name] = copyFields(value);
  return result as T;
}

function withOwnFields(data: unknown): Fields {
  return Object.assign(Object.create(null) as Fields, data);
}

function isObject(value: unknown): value is { [name: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
