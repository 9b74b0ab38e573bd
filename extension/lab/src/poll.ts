/** Asks the server again and again, as long as somebody can see the answer. */
import { Poll } from "@lumino/polling";

/** After failures, in milliseconds. */
export const LONGEST_PAUSE = 30_000;

/**
 * @param name - What is asked for.
 * @param interval - Milliseconds between two requests.
 * @param ask - Makes a request; if it fails, the next one comes later.
 * @param failed - Called with what has gone wrong, in words.
 * @param isSeen - Whether somebody looks, if the page is visible.
 */
export function polled(
  name: string,
  interval: number,
  ask: () => Promise<void>,
  failed: (problem: string) => void,
  isSeen: () => boolean,
): Poll<void> {
  const poll = new Poll<void>({
    name: `notebook-accel:${name}`,
    auto: false,
    factory: () =>
      ask().catch((error: unknown) => {
        failed(problemOf(error));
        throw error;
      }),
    frequency: { interval, backoff: true, max: LONGEST_PAUSE },
    standby: () => document.hidden || !isSeen(),
  });
  void poll.start();
  return poll;
}

/** What has gone wrong, in words. */
export function problemOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
