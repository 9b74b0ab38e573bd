import { newId } from "../dom";
import type { ChartReply, EarlierReply } from "../model";
import { type Table, unpack } from "./table";

/** What a chart asks the kernel for; see `chart_details.py`. */
export interface Question {
  metrics: string[];
  /** From the first step to the last one; `null` for all. */
  range: [number, number] | null;
  points: number;
  ranks: boolean;
  earlier: string;
  export: boolean;
}

export interface Detail extends Omit<ChartReply, "tables"> {
  tables: Table[];
}

interface Waiting {
  id: string;
  then: (json: unknown, numbers: Float64Array) => void;
}

/** Asks the kernel for the values of charts. An answer may never come: then the kernel is busy, or gone. */
export class ChartRequests {
  #send: (content: object) => void;
  /** By the chart that waits. */
  #waiting = new Map<string, Waiting>();

  constructor(send: (content: object) => void) {
    this.#send = send;
  }

  /** Calls `then` with the values, unless `chart` asks again before they have come. */
  detail(chart: string, question: Question, then: (detail: Detail) => void): void {
    this.#ask({ cmd: "chart", chart, ...question }, (json, numbers) => {
      const reply = json as ChartReply;
      then({ ...reply, tables: unpack(reply.tables, numbers) });
    });
  }

  /** Calls `then` with the earlier jobs. */
  earlierJobs(chart: string, then: (jobs: EarlierReply["jobs"]) => void): void {
    this.#ask({ cmd: "earlier", chart: `${chart}-jobs` }, (json) => then((json as EarlierReply).jobs));
  }

  /** Takes an answer of the kernel, JSON and an array of numbers, which may be for another page. */
  receive(id: string, [json, numbers]: DataView[]): void {
    const [chart, waiting] = [...this.#waiting].find(([, each]) => each.id === id) ?? [];
    if (chart === undefined || waiting === undefined || json === undefined || numbers === undefined) return;
    this.#waiting.delete(chart);
    const bytes = numbers.buffer.slice(numbers.byteOffset, numbers.byteOffset + numbers.byteLength);
    waiting.then(JSON.parse(new TextDecoder().decode(json)), new Float64Array(bytes as ArrayBuffer));
  }

  #ask(content: { cmd: string; chart: string }, then: Waiting["then"]): void {
    const id = newId();
    this.#waiting.set(content.chart, { id, then });
    this.#send({ id, ...content });
  }
}
