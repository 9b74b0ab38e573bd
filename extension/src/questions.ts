import { newId } from "./dom";
import type { Answer } from "./model";

type Taker<T extends Answer> = (answer: T, bytes: Uint8Array<ArrayBuffer>) => void;

interface Waiting {
  id: string;
  take: Taker<Answer>;
}

/** Sends to the kernel, asks it, and takes its answers. An answer may never come: then the kernel is busy, or gone. */
export class Questions {
  /** Sends a message that has no answer. */
  readonly send: (content: object) => void;
  /** By who asks. */
  #waiting = new Map<string, Waiting>();

  /** @param send Sends a message to the kernel. */
  constructor(send: (content: object) => void) {
    this.send = send;
  }

  /** Calls `then` with the answer and the bytes that follow it, unless `asker` asks again before it has come. */
  ask<T extends Answer>(asker: string, content: object, then: Taker<T>): void {
    const id = newId();
    this.#waiting.set(asker, { id, take: then as Taker<Answer> });
    this.send({ id, asker, ...content });
  }

  /** No longer waits for an answer. */
  forget(asker: string): void {
    this.#waiting.delete(asker);
  }

  /** Takes an answer, which may be for another page, and the bytes that follow it. */
  receive(answer: Answer, bytes: DataView | undefined): void {
    const [asker, waiting] = [...this.#waiting].find(([, each]) => each.id === answer.id) ?? [];
    if (asker === undefined || waiting === undefined || bytes === undefined) return;
    this.#waiting.delete(asker);
    const { buffer, byteOffset, byteLength } = bytes;
    waiting.take(answer, new Uint8Array(buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer));
  }
}
