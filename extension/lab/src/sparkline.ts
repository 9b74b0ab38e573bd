/** A line chart without axes. */
import { setAttribute } from "../../src/dom";
import type { Point } from "./model";

const NAMESPACE = "http://www.w3.org/2000/svg";
const WIDTH = 120;
const HEIGHT = 24;
const EDGE = 2;

/** Draws lines of points. */
export class Sparkline {
  readonly element = document.createElementNS(NAMESPACE, "svg");
  private readonly path = document.createElementNS(NAMESPACE, "path");

  constructor() {
    setAttribute(this.element, "class", "na-lab-spark");
    setAttribute(this.element, "viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    setAttribute(this.element, "role", "img");
    this.element.append(this.path);
  }

  /** @param label - What they are, for who can't see them. */
  update(label: string, lines: Point[][]): void {
    setAttribute(this.element, "aria-label", label);
    setAttribute(this.path, "d", lines.map(line).join(""));
  }
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
