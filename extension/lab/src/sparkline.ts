/** A line chart without axes. */
import type { TemplateResult } from "lit-html";
import { html } from "../../src/template";
import type { Point } from "./model";

const WIDTH = 120;
const HEIGHT = 24;
const EDGE = 2;

/**
 * Lines of points.
 * @param label - What they are, for who can't see them.
 * @param aspect - The SVG attribute `preserveAspectRatio`.
 */
export function sparkline(label: string, lines: Point[][], aspect = "xMidYMid"): TemplateResult {
  return html`<svg class="na-lab-spark" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" preserveAspectRatio=${aspect}
    aria-label=${label}><path d=${lines.map(line).join("")}></path></svg>`;
}

/** A single point is a line of no length, which its round ends make visible. */
function line(points: Point[]): string {
  const places = points.map(([x, y]) => `${scaled(x, WIDTH)} ${scaled(1000 - y, HEIGHT)}`);
  const [first = "0 0"] = places;
  return `M${first}L${places.length > 1 ? places.slice(1).join("L") : first}`;
}

function scaled(thousandths: number, length: number): number {
  return Math.round(10 * (EDGE + (thousandths / 1000) * (length - 2 * EDGE))) / 10;
}
