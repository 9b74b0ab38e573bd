import type { LogReply, LogTextReply } from "../model";
import type { Questions } from "../questions";

/** Which lines of a log are shown. */
export interface Filter {
  /** What a line contains; upper and lower case are the same. */
  text: string;
  /** `stdout`, `stderr`, or empty for both. */
  stream: string;
  /** The least level: 1 for warnings, 2 for errors. */
  level: number;
}

/** Asks the kernel for the lines of a rank, or of all ranks; see `log_requests.py`. */
export class LogRequests {
  #questions: Questions;
  #log: string;
  #rank: number | null;

  /** @param log The ID of the view that asks. */
  constructor(questions: Questions, log: string, rank: number | null) {
    this.#questions = questions;
    this.#log = log;
    this.#rank = rank;
  }

  /** Calls `then` with the last lines. */
  last(filter: Filter, then: (reply: LogReply) => void): void {
    this.#ask(this.#log, filter, null, null, then);
  }

  /** Calls `then` with the lines after a position, once there are some. */
  after(position: number, filter: Filter, then: (reply: LogReply) => void): void {
    this.#ask(this.#log, filter, null, position, then);
  }

  /** Calls `then` with the lines before a position. */
  before(position: number, filter: Filter, then: (reply: LogReply) => void): void {
    this.#ask(`${this.#log}-earlier`, filter, position, null, then);
  }

  /** No longer waits for any lines. */
  forget(): void {
    for (const asker of [this.#log, `${this.#log}-earlier`]) this.#questions.forget(asker);
  }

  /** Fetches the whole text as it is now, a part after the other; calls `onPart` with the fraction that has come. */
  async text(onPart: (fraction: number) => void): Promise<Blob> {
    const parts: Uint8Array<ArrayBuffer>[] = [];
    let after = 0;
    let last: number | undefined;
    for (;;) {
      const [reply, bytes] = await this.#part(after);
      if (reply.problem) throw new Error(reply.problem);
      last ??= reply.last;
      parts.push(bytes);
      if (reply.end >= last || reply.end <= after) return new Blob(parts, { type: "text/plain;charset=utf-8" });
      after = reply.end;
      onPart((after - reply.first) / (last - reply.first));
    }
  }

  #part(after: number): Promise<[LogTextReply, Uint8Array<ArrayBuffer>]> {
    const asker = `${this.#log}-text`;
    const content = { cmd: "log_text", log: this.#log, rank: this.#rank, after };
    return new Promise((resolve) => {
      this.#questions.ask(asker, content, (json, bytes) =>
        resolve([json as LogTextReply, bytes as Uint8Array<ArrayBuffer>]),
      );
    });
  }

  #ask(
    asker: string,
    filter: Filter,
    before: number | null,
    after: number | null,
    then: (reply: LogReply) => void,
  ): void {
    const content = { cmd: "log", log: asker, rank: this.#rank, before, after, ...filter };
    this.#questions.ask(asker, content, (json) => then(json as LogReply));
  }
}
