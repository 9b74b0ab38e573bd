import { newId } from "./dom";

interface Waiting {
  id: string;
  then: (json: unknown, bytes: Uint8Array) => void;
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

  /** Calls `then` with the answer, JSON and bytes, unless `asker` asks again before it has come. */
  ask(asker: string, content: object, then: Waiting["then"]): void {
    const id = newId();
    this.#waiting.set(asker, { id, then });
    this.send({ id, ...content });
  }

  /** No longer waits for an answer. */
  forget(asker: string): void {
    this.#waiting.delete(asker);
  }

  /** Takes an answer of the kernel, which may be for another page. */
  receive(id: string, [json, bytes]: DataView[]): void {
    const [asker, waiting] = [...this.#waiting].find(([, each]) => each.id === id) ?? [];
    if (asker === undefined || waiting === undefined || json === undefined || bytes === undefined) return;
    this.#waiting.delete(asker);
    const { buffer, byteOffset, byteLength } = bytes;
    const copy = new Uint8Array(buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer);
    waiting.then(JSON.parse(new TextDecoder().decode(json)), copy);
  }
}
