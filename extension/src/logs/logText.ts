import type { JobLink } from "../jobLink";
import type { LogTextReply } from "../model";

/**
 * Fetches the whole text of a log as it is now, a part after the other; see `log_requests.py`.
 *
 * @param log The ID of the view that asks.
 * @param rank `null` for all ranks.
 * @param onPart Called with the fraction that has come.
 */
export async function logText(
  link: JobLink,
  log: string,
  rank: number | null,
  onPart: (fraction: number) => void,
): Promise<Blob> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let after = 0;
  let last: number | undefined;
  for (;;) {
    const [reply, bytes] = await new Promise<[LogTextReply, Uint8Array<ArrayBuffer>]>((resolve) => {
      link.ask<LogTextReply>(`${log}-text`, { cmd: "log_text", rank, after }, (...answer) => resolve(answer));
    });
    if (reply.problem) throw new Error(reply.problem);
    last ??= reply.last;
    parts.push(bytes);
    if (reply.end >= last || reply.end <= after) return new Blob(parts, { type: "text/plain;charset=utf-8" });
    after = reply.end;
    onPart((after - reply.first) / (last - reply.first));
  }
}
