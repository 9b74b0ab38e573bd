import { beforeEach, describe, expect, it, vi } from "vitest";
import { blocks, rankSpans } from "../../src/logs/blocks";
import { LogView } from "../../src/logs/logView";
import type { LogLineRow, LogReply } from "../../src/model";
import { aLink, find } from "../examples";

interface Sent {
  id: string;
  asker: string;
  before: number | null;
  after: number | null;
  text: string;
}

/** An open log, and the kernel that it asks. */
function anOpenLog(rank: number | null = null) {
  const sent: Sent[] = [];
  const link = aLink(undefined, (content) => sent.push(content as Sent));
  const view = new LogView({ rank, title: () => "train" }, link, true);
  document.body.append(view.element);
  const answer = (lines: LogLineRow[], fields: Partial<LogReply> = {}) => {
    const question = sent.at(-1) as Sent;
    const end = (lines.at(-1)?.[0] ?? 0) + 1;
    const content = { first: lines[0]?.[0] ?? 0, end, more: false, gap: false, problem: "", lines, ...fields };
    link.receive({ replies: [{ id: question.id, ...content }] }, [new DataView(new ArrayBuffer(0))]);
  };
  const shown = () => [...view.element.querySelectorAll(".na-lines > *")].map((line) => line.textContent);
  return { view, sent, answer, shown };
}

function written(position: number, text: string, rank = 0, stream = 0, level = 0): LogLineRow {
  return [position, rank, stream, 0, level, text];
}

beforeEach(() => document.body.replaceChildren());

describe("a log", () => {
  it("shows what a rank has written as text, whatever it is", () => {
    const { view, answer, shown } = anOpenLog();
    answer([written(0, '<img src=x onerror="alert(1)">\u001b[31m<b>red</b>', 3, 1)]);
    expect(shown()).toEqual(['[3] <img src=x onerror="alert(1)"><b>red</b>']);
    expect(view.element.querySelector("img, b")).toBeNull();
    expect(find(view.element, ".na-color").textContent).toBe("<b>red</b>");
    expect(find(view.element, ".na-log-line").dataset.stream).toBe("stderr");
  });

  it("follows the job, and keeps the last thousand lines", () => {
    const { view, sent, answer, shown } = anOpenLog(0);
    answer(Array.from({ length: 1000 }, (_, at) => written(at, `line ${at}`)));
    expect(sent.at(-1)?.after).toBe(1000);
    answer([written(1000, "new")]);
    expect(shown()).toHaveLength(1000);
    expect(shown()[0]).toBe("line 1");
    expect(shown().at(-1)).toBe("new");
    const earlier = find(view.element, ".na-output > .na-tool");
    earlier.click();
    expect(sent.at(-1)).toMatchObject({ before: 1, after: null });
    answer([written(0, "line 0")], { more: false });
    expect(shown()).toHaveLength(1001);
    expect(earlier.hidden).toBe(true);
  });

  it("says that lines were left out by starting anew", () => {
    const { answer, shown, view } = anOpenLog(0);
    answer([written(0, "old")]);
    answer([written(90_000, "much later")], { gap: true, more: true });
    expect(shown()).toEqual(["much later"]);
    expect(find(view.element, ".na-output > .na-tool").hidden).toBe(false);
  });

  it("asks the kernel for the lines that match, and marks what was searched for", () => {
    vi.useFakeTimers();
    const { view, sent, answer, shown } = anOpenLog(0);
    answer([written(0, "loss 1"), written(1, "\u001b[1mLO\u001b[0mSS 2"), written(2, "other")]);
    const search = find(view.element, ".na-search") as HTMLInputElement;
    search.value = "Loss";
    search.dispatchEvent(new Event("input"));
    expect(shown()).toEqual(["loss 1", "LOSS 2"]); // at once, of those that are here
    expect(view.element.querySelectorAll("mark")).toHaveLength(3);
    vi.runAllTimers();
    vi.useRealTimers();
    expect(sent.at(-1)).toMatchObject({ text: "loss", before: null, after: null });
    answer([written(0, "loss 0")], { more: true });
    expect(find(view.element, ".na-count").textContent).toBe("1 line matches so far");
  });

  it("says why there are no lines", () => {
    const { view, answer } = anOpenLog();
    answer([], { problem: "The log can't be read" });
    expect(find(view.element, ".na-tools > .na-count").textContent).toBe("The log can't be read");
  });

  it("shows the lines of the panel's state until the kernel answers", () => {
    const { view, answer, shown } = anOpenLog(0);
    view.update({ "10": "b", "9": "a" });
    expect(shown()).toEqual(["a", "b"]);
    answer([written(0, "of the log")]);
    view.update({ "11": "c" });
    expect(shown()).toEqual(["of the log"]);
  });
});

describe("the blocks of a log", () => {
  it("are tracebacks, and equal lines of any ranks", () => {
    const traceback = ["Traceback (most recent call last):", '  File "a.py", line 1', "    f()", "ValueError: no"];
    const texts = ["saved", "saved", "saved", ...traceback, "next", "", ""];
    const found = blocks(texts.map((text, at) => written(at, text, at < 3 ? at : 0)));
    expect(found.map(({ kind, lines }) => [kind, lines.length])).toEqual([
      ["repeated", 3],
      ["traceback", 4],
      ["line", 1],
      ["line", 1],
      ["line", 1],
    ]);
    expect(rankSpans([3, 0, 1, 2, 6, 1])).toBe("0-3,6");
  });
});
