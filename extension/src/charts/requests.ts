import type { ChartReply, EarlierReply } from "../model";
import type { Questions } from "../questions";
import { type Table, unpack } from "./table";

/** What a chart asks the kernel for; see `chart_requests.py`. */
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

/** Asks the kernel for the values of charts. */
export class ChartRequests {
  #questions: Questions;

  constructor(questions: Questions) {
    this.#questions = questions;
  }

  /** Calls `then` with the values, unless `chart` asks again before they have come. */
  detail(chart: string, question: Question, then: (detail: Detail) => void): void {
    this.#questions.ask(chart, { cmd: "chart", chart, ...question } as { cmd: string }, (json, bytes) => {
      const reply = json as ChartReply;
      then({ ...reply, tables: unpack(reply.tables, new Float64Array(bytes.buffer as ArrayBuffer)) });
    });
  }

  /** Calls `then` with the earlier jobs. */
  earlierJobs(chart: string, then: (jobs: EarlierReply["jobs"]) => void): void {
    const asker = `${chart}-jobs`;
    this.#questions.ask(asker, { cmd: "earlier", chart: asker } as { cmd: string }, (json) =>
      then((json as EarlierReply).jobs),
    );
  }
}
