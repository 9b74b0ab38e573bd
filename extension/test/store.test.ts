import { describe, expect, it } from "vitest";
import { merge } from "../src/patch";
import { Store } from "../src/store";
import { aState } from "./examples";

describe("a merge patch", () => {
  it.each([
    // From the appendix of RFC 7396, those of objects.
    [{ a: "b" }, { a: "c" }, { a: "c" }],
    [{ a: "b" }, { b: "c" }, { a: "b", b: "c" }],
    [{ a: "b" }, { a: null }, {}],
    [{ a: "b", b: "c" }, { a: null }, { b: "c" }],
    [{ a: ["b"] }, { a: "c" }, { a: "c" }],
    [{ a: "c" }, { a: ["b"] }, { a: ["b"] }],
    [{ a: { b: "c" } }, { a: { b: "d", c: null } }, { a: { b: "d" } }],
    [{ a: [{ b: "c" }] }, { a: [1] }, { a: [1] }],
    [{ e: null }, { a: 1 }, { e: null, a: 1 }],
    [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
  ])("makes of %j by %j %j", (target, patch, result) => {
    expect(merge<object>(target, patch)).toEqual(result);
  });

  it("leaves what it does not touch the same object", () => {
    const before = { one: { n: 1 }, other: { n: 2 } };
    const after = merge(before, { one: { n: 3 } });
    expect(after.other).toBe(before.other);
    expect(after.one).not.toBe(before.one);
    expect(before.one.n).toBe(1);
  });

  it.each(["constructor", "toString", "__proto__"])("takes %s for a name like any other", (name) => {
    const values = JSON.parse(`{"${name}": {"now": "1"}}`);
    expect(name in merge({}, { other: 1 })).toBe(false);
    expect(Object.entries(merge({}, values))).toEqual([[name, { now: "1" }]]);
  });
});

describe("a store", () => {
  const named = (name: string) => ({ head: { name } });

  it("applies deltas in their order", () => {
    const store = new Store({ seq: 0, state: aState(1) });
    expect(store.apply({ seq: 1, patch: named("one") })).toBe(true);
    expect(store.apply({ seq: 2, patch: named("two") })).toBe(true);
    expect([store.seq, store.state.head.name]).toEqual([2, "two"]);
  });

  it("does not apply a delta twice", () => {
    const store = new Store({ seq: 5, state: aState(1) });
    expect(store.apply({ seq: 5, patch: named("again") })).toBe(true);
    expect(store.state.head.name).toBe("train()");
  });

  it("holds a delta that has overtaken a keyframe, and says that something is missing", () => {
    const store = new Store({ seq: 0, state: aState(1) });
    expect(store.apply({ seq: 3, patch: named("three") })).toBe(false);
    expect(store.state.head.name).toBe("train()");
    store.replace({ seq: 2, state: aState(1, { name: "two", elapsed: "2 s" }) });
    expect([store.seq, store.state.head.name, store.state.head.elapsed]).toEqual([3, "three", "2 s"]);
  });

  it("does not go back to an older keyframe", () => {
    const store = new Store({ seq: 4, state: aState(1) });
    store.replace({ seq: 3, state: aState(1, { name: "old" }) });
    expect(store.state.head.name).toBe("train()");
  });

  it("tells who listens, until they no longer do", () => {
    const store = new Store({ seq: 0, state: aState(1) });
    let told = 0;
    const end = store.subscribe(() => {
      told += 1;
    });
    store.apply({ seq: 1, patch: {} });
    end();
    store.apply({ seq: 2, patch: {} });
    expect(told).toBe(1);
  });
});
