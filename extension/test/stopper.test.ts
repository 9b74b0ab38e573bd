import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Head } from "../src/model";
import { Stopper } from "../src/stopper";
import { aState } from "./examples";

describe("stop escalation", () => {
  let head: Head;
  let sent: object[];
  let interrupts: number;
  let stopper: Stopper;

  beforeEach(() => {
    vi.useFakeTimers();
    head = aState(1).head;
    sent = [];
    interrupts = 0;
    stopper = new Stopper({
      send: (content) => sent.push(content),
      interrupt: () => {
        interrupts += 1;
      },
      store: () => ({ state: { ...aState(1), head }, isConnected: true }),
    });
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  it("asks, and interrupts nothing when that is heard", () => {
    stopper.click();
    expect(sent).toEqual([{ cmd: "stop", click: 1 }]);
    stopper.acknowledge(1);
    vi.advanceTimersByTime(10_000);
    expect(interrupts).toBe(0);
  });

  it("interrupts the kernel where it does not hear within 400 ms", () => {
    stopper.click();
    vi.advanceTimersByTime(399);
    expect(interrupts).toBe(0);
    vi.advanceTimersByTime(1);
    expect(interrupts).toBe(1);
  });

  it("never interrupts for a job in the background", () => {
    head = { ...head, blocking: false };
    stopper.click();
    vi.advanceTimersByTime(10_000);
    expect(interrupts).toBe(0);
  });

  it("does not interrupt what runs after the job", () => {
    stopper.click();
    head = { ...head, status: "interrupted" };
    vi.advanceTimersByTime(10_000);
    expect(interrupts).toBe(0);
  });

  it("takes the acknowledgment of the first click for that one alone", () => {
    stopper.click();
    stopper.acknowledge(1);
    stopper.click();
    vi.advanceTimersByTime(400);
    expect(interrupts).toBe(1);
    expect(sent.at(-1)).toEqual({ cmd: "stop", click: 2 });
  });

  it("counts on from an interrupt that came by another way", () => {
    head = { ...head, stopping: 1 };
    expect(stopper.state).toBe("stopping");
    stopper.click();
    expect(sent).toEqual([{ cmd: "stop", click: 2 }]);
    expect(stopper.state).toBe("killing");
  });

  it("is more patient where answers take long", () => {
    stopper.announce();
    vi.advanceTimersByTime(300);
    stopper.acknowledge(0);
    stopper.click();
    vi.advanceTimersByTime(1199);
    expect(interrupts).toBe(0);
    vi.advanceTimersByTime(1);
    expect(interrupts).toBe(1);
  });

  it("does not take the wait for a cell's end for the way's length", () => {
    stopper.announce();
    vi.advanceTimersByTime(60_000);
    stopper.acknowledge(0);
    stopper.click();
    vi.advanceTimersByTime(400);
    expect(interrupts).toBe(1);
  });

  it("goes from stop over stopping and killing to stopped", () => {
    const states = [stopper.state];
    stopper.click();
    states.push(stopper.state);
    stopper.click();
    states.push(stopper.state);
    head = { ...head, status: "cancelled" };
    states.push(stopper.state);
    expect(states).toEqual(["stop", "stopping", "killing", "stopped"]);
  });
});
