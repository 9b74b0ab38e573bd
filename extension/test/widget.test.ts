import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import widget from "../src/index";
import { aState, drawn, FakeModel, find } from "./examples";

const ends: (() => void)[] = [];

/** A widget as anywidget makes one, with one view. */
function open(model: FakeModel) {
  const { initialize, render } = widget();
  ends.push(initialize({ model }));
  const view = () => {
    const el = document.createElement("div");
    document.body.append(el);
    return { el, close: render({ el }) };
  };
  return { view };
}

beforeEach(() => {
  document.body.replaceChildren();
});

afterEach(() => {
  for (const end of ends.splice(0)) end();
});

describe("the widget", () => {
  it("says that it is there before it is shown", () => {
    const model = new FakeModel({ seq: 0, state: aState(2) });
    open(model);
    expect(model.sent).toEqual([{ cmd: "ready" }]);
  });

  it("speaks on the control channel once the kernel is heard there, and answers pings", () => {
    const model = new FakeModel({ seq: 0, state: aState(2) });
    const control: unknown[] = [];
    model.widget_manager.kernel.sendControlMessage = (message) => {
      const { msg_type, channel } = { ...(message.header as { msg_type: string }), channel: message.channel };
      control.push((message.content as { notebook_accel: { content: object } }).notebook_accel.content);
      expect([msg_type, channel]).toEqual(["comm_info_request", "control"]);
    };
    open(model);
    expect([model.sent, control]).toEqual([[{ cmd: "ready" }], [{ cmd: "ready" }]]);
    model.receive({});
    expect(control).toHaveLength(1);
    model.receive({ control: true });
    for (let count = 0; count < 3; count += 1) model.receive({});
    model.receive({ seq: 2, patch: {} }); // one is missing
    expect(control.slice(1)).toEqual([{ cmd: "seen" }, { cmd: "ready" }]);
    expect(model.sent).toHaveLength(1);
  });

  it("draws what the kernel says, delta by delta", async () => {
    const model = new FakeModel({ seq: 0, state: aState(2) });
    const { el } = open(model).view();
    model.receive({ seq: 1, patch: { ranks: { "1": { done: 500 } } } });
    await drawn();
    expect(find(el, '.na-row[data-rank="1"] .na-percent').textContent).toBe("50%");
  });

  it("asks for the whole when it has missed something", async () => {
    const model = new FakeModel({ seq: 0, state: aState(2) });
    const { el } = open(model).view();
    model.receive({ seq: 2, patch: { head: { elapsed: "2 s" } } });
    expect(model.sent).toEqual([{ cmd: "ready" }, { cmd: "ready" }]);
    model.set({ seq: 3, state: aState(2, { elapsed: "3 s" }) });
    await drawn();
    expect(find(el, ".na-elapsed").textContent).toBe("3 s");
  });

  it("draws the same in several places", async () => {
    const model = new FakeModel({ seq: 0, state: aState(2) });
    const shown = open(model);
    const [one, other] = [shown.view(), shown.view()];
    model.receive({ seq: 1, patch: { head: { elapsed: "9 s" } } });
    await drawn();
    for (const { el } of [one, other]) expect(find(el, ".na-elapsed").textContent).toBe("9 s");
    one.close();
    expect(one.el.children).toHaveLength(0);
    model.receive({ seq: 2, patch: { head: { elapsed: "10 s" } } });
    await drawn();
    expect(find(other.el, ".na-elapsed").textContent).toBe("10 s");
  });

  it("leaves its last picture where nothing takes its place", async () => {
    const model = new FakeModel({ seq: 0, state: aState(2) });
    const { el, close } = open(model).view();
    const [cell, output] = [document.createElement("div"), document.createElement("div")];
    document.body.append(cell);
    cell.append(output);
    output.append(el);
    await drawn();
    model.receive({ seq: 1, patch: { head: { status: "done" } } });
    close();
    el.remove();
    await vi.waitFor(() => expect(find(cell, ".na-panel").dataset.status).toBe("done"));
  });

  it("keeps what is unfolded when its output is drawn again", async () => {
    const model = new FakeModel({ seq: 0, state: aState(2) });
    const shown = open(model);
    const before = shown.view();
    const toggle = find(before.el, '.na-row[data-rank="1"] .na-toggle');
    toggle.click();
    toggle.focus();
    await drawn();
    const lines = find(before.el, ".na-lines");
    lines.scrollTop = 30;
    lines.dispatchEvent(new Event("scroll"));
    before.el.remove(); // JupyterLab tells nobody
    toggle.blur(); // as browsers do with what is no longer there
    lines.scrollTop = 0;
    const after = shown.view();
    await drawn();
    expect(find(after.el, '.na-row[data-rank="1"] .na-toggle').getAttribute("aria-expanded")).toBe("true");
    expect(document.activeElement).toBe(toggle);
    expect(lines.scrollTop).toBe(30);
    before.close();
    expect(find(after.el, ".na-panel").isConnected).toBe(true);
  });

  it("says that a job has ended with its kernel", async () => {
    const state = aState(2);
    state.controls.commands = [{ action: "pause", label: "Pause", hint: "", possible: true }];
    const model = new FakeModel({ seq: 0, state });
    const { el } = open(model).view();
    expect(find(el, ".na-controls").hidden).toBe(false);
    model.receive({ seq: 1, patch: { ranks: { "1": { phase: "done" } } } });
    model.widget_manager.kernel.statusChanged.emit("busy");
    await drawn();
    expect(find(el, ".na-status").textContent).toBe("running");
    model.widget_manager.kernel.statusChanged.emit("restarting");
    await drawn();
    expect(find(el, ".na-status").textContent).toBe("ended with its kernel");
    expect(find(el, ".na-panel").dataset.status).toBe("ended with its kernel");
    expect(find(el, ".na-controls").hidden).toBe(true);
    expect([...el.querySelectorAll(".na-word")].map((word) => word.textContent)).toEqual(["stopped", "done"]);
    expect(find(el, ".na-stop").hasAttribute("disabled")).toBe(true);
    expect(find(el, "[role=status]").textContent).toBe("train() ended with its kernel");
    const attach = find(el, ".na-lab-attach");
    expect(attach.getAttribute("aria-label")).toBe("Attach to train()");
    expect(attach.dataset.commandlinkerCommand).toBe("notebook-accel:attach");
    expect(attach.dataset.commandlinkerArgs).toBe('{"job":"a1b2c3"}');
  });

  it("does not call a job ended that goes on without its kernel", async () => {
    const model = new FakeModel({ seq: 0, state: aState(2, { kernel_lost_note: "attach() shows it" }) });
    const { el } = open(model).view();
    model.widget_manager.kernel.statusChanged.emit("dead");
    await drawn();
    expect(find(el, ".na-status").textContent).toBe("not connected");
    expect(find(el, ".na-note").textContent).toBe("attach() shows it");
    expect([...el.querySelectorAll(".na-word")].map((word) => word.textContent)).toEqual(["running", "running"]);
    expect(find(el, ".na-stop").hasAttribute("disabled")).toBe(true);
  });

  it("says so where the notebook is given another kernel", async () => {
    const model = new FakeModel({ seq: 0, state: aState(1) });
    const { el } = open(model).view();
    model.widget_manager.kernel.disposed.emit();
    await drawn();
    expect(find(el, ".na-status").textContent).toBe("ended with its kernel");
  });

  it("leaves a job as it is that ended before its kernel", async () => {
    const model = new FakeModel({ seq: 0, state: aState(1, { status: "done" }) });
    const { el } = open(model).view();
    model.widget_manager.kernel.statusChanged.emit("restarting");
    await drawn();
    expect(find(el, ".na-status").textContent).toBe("done");
    expect(find(el, ".na-panel").dataset.disconnected).toBeUndefined();
    expect(el.querySelector(".na-lab-attach")).toBeNull();
  });

  it("listens to its kernel no longer once it is gone", () => {
    const model = new FakeModel({ seq: 0, state: aState(1) });
    const { initialize, render } = widget();
    const end = initialize({ model });
    const el = document.createElement("div");
    render({ el });
    end();
    model.widget_manager.kernel.statusChanged.emit("restarting");
    expect(find(el, ".na-stop").hasAttribute("disabled")).toBe(false);
  });

  it("interrupts the kernel where nobody acknowledges a stop", () => {
    vi.useFakeTimers();
    try {
      const model = new FakeModel({ seq: 0, state: aState(1) });
      const { el } = open(model).view();
      find(el, ".na-stop").click();
      vi.advanceTimersByTime(400);
      expect(model.interrupts).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });

  it("interrupts nothing where a stop is acknowledged", () => {
    vi.useFakeTimers();
    try {
      const model = new FakeModel({ seq: 0, state: aState(1) });
      const { el } = open(model).view();
      find(el, ".na-stop").click();
      model.receive({ ack: 1 });
      vi.advanceTimersByTime(400);
      expect(model.interrupts).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });
});
