/** The devices of the server's machine, in the sidebar: a section that can be closed, live while it is open and visible. */
import { nothing, render, type TemplateResult } from "lit-html";
import { repeat } from "lit-html/directives/repeat.js";
import { make } from "../../src/dom";
import { html } from "../../src/template";
import type { Jobs } from "./jobs";
import type { Device, DeviceListing, Gauge } from "./model";
import { polled } from "./poll";
import { listDevices } from "./server";
import { sparkline } from "./sparkline";

const PAUSE = 1000;

export class DeviceSection {
  readonly element = make("details", "na-lab-section", { open: "" });
  private isVisible = false;
  private listing: DeviceListing = { devices: [], problem: "" };
  private readonly poll = polled(
    "devices",
    PAUSE,
    async () => this.take(await listDevices()),
    (problem) => this.take({ ...this.listing, problem }),
    () => this.isSeen,
  );

  constructor(private readonly jobs: Jobs) {
    this.element.addEventListener("toggle", () => this.watch());
    jobs.changed.connect(() => {
      if (this.isSeen) this.draw();
    });
    this.draw();
  }

  /** Whether the sidebar is visible. */
  show(isVisible: boolean): void {
    this.isVisible = isVisible;
    this.watch();
  }

  /** Asks at once when the user begins to look; while nobody looks, the server measures nothing. */
  private watch(): void {
    if (this.isSeen) void this.poll.refresh();
  }

  private get isSeen(): boolean {
    return this.isVisible && this.element.open;
  }

  private take(listing: DeviceListing): void {
    this.listing = listing;
    if (this.isSeen) this.draw();
  }

  private draw(): void {
    const { devices, problem } = this.listing;
    const items = repeat(
      devices,
      (each) => each.id,
      (each) => device(each, this.jobsOn(each.id)),
    );
    render(
      html`<summary class="na-lab-summary-line"><h2 class="na-lab-name">Devices</h2></summary>
      <p class="na-lab-message na-lab-problem" role="status" ?hidden=${problem === ""}>${problem}</p>
      <ul class="na-lab-devices">${items}</ul>`,
      this.element,
    );
  }

  private jobsOn(device: string): string[] {
    return this.jobs.rows.filter((row) => row.live).flatMap((row) => row.devices[device] ?? []);
  }
}

/** One device, with the ranks that are on it, a line for each job. */
function device({ id, title, gauges, warning }: Device, jobs: string[]): TemplateResult {
  return html`<li class="na-lab-device" data-device=${id}>
    <div class="na-lab-title" title=${title}>${title}</div>
    <ul class="na-lab-gauges">${gauges.map((each) => gauge(each, title))}</ul>
    ${jobs.length ? html`<div class="na-lab-device-jobs">${jobs.join("\n")}</div>` : nothing}
    ${warning ? html`<div class="na-lab-warning" role="status">${warning}</div>` : nothing}
  </li>`;
}

function gauge({ name, value, lines }: Gauge, device: string): TemplateResult {
  const label = `${name} of ${device} over the last five minutes, now ${value}`;
  return html`<li class="na-lab-gauge">
    <div class="na-lab-gauge-text">
      <span class="na-lab-gauge-name">${name}</span>
      <span class="na-lab-gauge-value">${value}</span>
    </div>
    ${sparkline(label, lines, "none") /* as wide as the gauge */}
  </li>`;
}
