// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { About } from "../src/about";
import { followOnPage } from "../src/page";
import { choose } from "../src/preferences";
import type { Store } from "../src/store";
import { aStore } from "./examples";

const ORIGINAL = "Notebook.ipynb";
let stop: () => void;
let store: Store;
let shown: [string, NotificationOptions | undefined][];
let permission: NotificationPermission;

beforeEach(() => {
  vi.useFakeTimers();
  localStorage.clear();
  document.title = ORIGINAL;
  shown = [];
  permission = "granted";
  class Fake {
    static get permission() {
      return permission;
    }
    static requestPermission = vi.fn(async () => permission);
    constructor(title: string, options?: NotificationOptions) {
      shown.push([title, options]);
    }
  }
  vi.stubGlobal("Notification", Fake);
  vi.stubGlobal("isSecureContext", true);
  store = aStore(2, { tab: "25% · loss 0.5" });
  stop = followOnPage(store);
  vi.advanceTimersByTime(1000);
});

afterEach(() => {
  stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const change = (head: object) => {
  store.apply({ seq: store.seq + 1, patch: { head: { ...head } } });
  vi.advanceTimersByTime(1000);
};

test("the tab's title shows the job, and is what it was when the job has ended", () => {
  expect(document.title).toBe(`25% · loss 0.5 — ${ORIGINAL}`);
  change({ tab: "57% · loss 0.21" });
  expect(document.title).toBe(`57% · loss 0.21 — ${ORIGINAL}`);
  document.title = "Other.ipynb"; // the user has opened another file
  change({ tab: "60%" });
  expect(document.title).toBe("60% — Other.ipynb");
  change({ status: "done" });
  expect(document.title).toBe("Other.ipynb");
});

test("of several jobs, the last is in the title", () => {
  const stopSecond = followOnPage(aStore(1, { tab: "3%" }));
  vi.advanceTimersByTime(1000);
  expect(document.title).toBe(`3% — ${ORIGINAL}`);
  stopSecond();
  expect(document.title).toBe(`25% · loss 0.5 — ${ORIGINAL}`);
});

test("the title can be turned off, also while a job runs", () => {
  choose("tab-title", false);
  expect(document.title).toBe(ORIGINAL);
  change({ tab: "30%" });
  expect(document.title).toBe(ORIGINAL);
});

test("the end of a job is notified if the user has wished for it", () => {
  change({ status: "done", elapsed: "12 s elapsed" });
  expect(shown).toEqual([]);
  choose("notify", true);
  const stopSecond = followOnPage(store);
  change({ status: "running" });
  change({ status: "failed", elapsed: "15 s elapsed" });
  expect(shown.at(-1)).toEqual(["train()", { body: "failed · 15 s elapsed" }]);
  stopSecond();
});

test("the permission is asked for when the user wishes for notifications, and not before", async () => {
  const about = new About();
  document.body.replaceChildren(about.element);
  expect(Notification.requestPermission).not.toHaveBeenCalled();
  const box = about.element.querySelectorAll("input")[1] as HTMLInputElement;
  permission = "denied";
  box.click();
  await vi.runAllTimersAsync();
  expect(Notification.requestPermission).toHaveBeenCalledOnce();
  expect(box.checked).toBe(false);
  expect(about.element.textContent).toContain("The browser blocks notifications");
});

test("the facts of the run are there, as text", () => {
  const about = new About();
  about.update({ Call: "train('<b>')", Job: "a1b2c3" });
  about.update({ Call: "train('<b>')" });
  expect([...about.element.querySelectorAll("dd")].map((each) => each.textContent)).toEqual(["train('<b>')"]);
});
