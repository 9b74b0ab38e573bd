import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Device, DeviceListing, JobListing, JobRow } from "../src/model";

const listJobs = vi.hoisted(() => vi.fn<(brief: boolean) => Promise<JobListing>>());
const listDevices = vi.hoisted(() => vi.fn<() => Promise<DeviceListing>>());
vi.mock("../src/server", () => ({ listJobs, listDevices }));

const { Jobs } = await import("../src/jobs");
const { DeviceSection } = await import("../src/deviceSection");

const GPU: Device = {
  id: "GPU-1",
  title: "GPU 0 · H100",
  gauges: [{ name: "utilization", value: "87%", lines: [[[1000, 870]]] }],
  warning: "",
};
const ROW = { title: "train()", live: true, devices: { "GPU-1": "train(): ranks 0, 2" } } as unknown as JobRow;

beforeEach(() => {
  vi.useFakeTimers();
  listJobs.mockReset().mockResolvedValue({ jobs: [ROW, { ...ROW, live: false }], problem: "" });
  listDevices.mockReset().mockResolvedValue({ devices: [GPU], problem: "" });
});

afterEach(() => {
  vi.useRealTimers();
});

async function asked(milliseconds: number): Promise<number> {
  const before = listDevices.mock.calls.length;
  await vi.advanceTimersByTimeAsync(milliseconds);
  return listDevices.mock.calls.length - before;
}

test("devices are asked for while the section is visible and open, and only then", async () => {
  const section = new DeviceSection(new Jobs());
  expect(await asked(5000)).toBe(0);
  section.show(true);
  expect(await asked(5000)).toBeGreaterThanOrEqual(5);
  section.element.open = false;
  section.element.dispatchEvent(new Event("toggle"));
  await asked(1000);
  expect(await asked(5000)).toBe(0);
  section.element.open = true;
  section.element.dispatchEvent(new Event("toggle"));
  expect(await asked(1000)).toBeGreaterThanOrEqual(1);
  section.show(false);
  await asked(1000);
  expect(await asked(5000)).toBe(0);
});

test("a device has its gauges, the ranks that are on it, and a warning, as text", async () => {
  const jobs = new Jobs();
  const section = new DeviceSection(jobs);
  jobs.watch("test", { pause: 1000, brief: false });
  section.show(true);
  await asked(1000);
  const item = section.element.querySelector(".na-lab-device") as HTMLElement;
  expect(item.textContent).toBe("GPU 0 · H100utilization87%train(): ranks 0, 2");
  const label = "utilization of GPU 0 · H100 over the last five minutes, now 87%";
  expect(item.querySelector("svg")?.getAttribute("aria-label")).toBe(label);
  listDevices.mockResolvedValue({ devices: [{ ...GPU, warning: "<b>Hot</b>" }], problem: "The GPUs can't be read" });
  await asked(2000);
  expect(item.querySelector(".na-lab-warning")?.textContent).toBe("<b>Hot</b>");
  expect(section.element.querySelector(".na-lab-problem")?.textContent).toBe("The GPUs can't be read");
});
