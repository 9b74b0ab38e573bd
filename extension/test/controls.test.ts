// @vitest-environment happy-dom
import { beforeEach, expect, test } from "vitest";
import { Controls } from "../src/controls";
import type { Controls as Model } from "../src/model";

const MODEL: Model = {
  commands: [
    { action: "pause", label: "Pause", hint: "Pause it", possible: true },
    { action: "checkpoint", label: "Save checkpoint", hint: "not possible: no folder", possible: false },
  ],
  fields: [{ action: "tune", name: "lr", value: "0.1", hint: "at least 0", example: "", step: "any" }],
  feedback: "",
};

let sent: object[];
let controls: Controls;

beforeEach(() => {
  sent = [];
  controls = new Controls((content) => sent.push(content));
  controls.update(MODEL);
  document.body.replaceChildren(controls.element);
});

const button = (name: string) =>
  [...controls.element.querySelectorAll("button")].find((each) => each.textContent === name) as HTMLButtonElement;
const input = () => controls.element.querySelector("input") as HTMLInputElement;
const feedback = () => controls.element.querySelector(".na-feedback")?.textContent;

test("a button sends what it does, and one that is not possible says why", () => {
  button("Pause").click();
  expect(sent).toEqual([{ cmd: "control", action: "pause" }]);
  button("Save checkpoint").click();
  expect(sent).toHaveLength(1);
  expect(feedback()).toBe("not possible: no folder");
});

test("a value is sent as it was typed, and what is typed outlives an update", () => {
  expect(button("Set").disabled).toBe(true);
  input().value = "0.01";
  input().dispatchEvent(new Event("input"));
  controls.update({ ...MODEL, feedback: "lr=0.01 is refused" });
  expect(input().value).toBe("0.01");
  expect(feedback()).toBe("lr=0.01 is refused");
  button("Set").click();
  expect(sent).toEqual([{ cmd: "control", action: "tune", name: "lr", value: "0.01" }]);
  controls.update({
    ...MODEL,
    fields: [{ action: "tune", name: "lr", value: "0.01", hint: "", example: "", step: "any" }],
  });
  expect(button("Set").disabled).toBe(true);
});

test("Escape brings the value back", () => {
  input().value = "7";
  input().dispatchEvent(new Event("input"));
  input().dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  expect(input().value).toBe("0.1");
});

test("a condition is sent as text", () => {
  const field = {
    action: "stop when",
    name: "Stop when",
    value: "",
    hint: "such as loss > 10",
    example: "loss is NaN",
    step: "",
  };
  controls.update({ ...MODEL, fields: [field] });
  expect(input().type).toBe("text");
  input().value = "loss > 10";
  input().dispatchEvent(new Event("input"));
  button("Set").click();
  expect(sent).toEqual([{ cmd: "control", action: "stop when", name: "Stop when", value: "loss > 10" }]);
});

test("without anything to control, nothing is there", () => {
  controls.update({ commands: [], fields: [], feedback: "" });
  expect(controls.element.hidden).toBe(true);
});
