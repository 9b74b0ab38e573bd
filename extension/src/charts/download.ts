import type { Table } from "./table";

const HEADER = ["metric", "job", "rank", "first step", "last step", "mean", "minimum", "maximum"];

/** Tables as CSV (RFC 4180), with a row for each point, and one for each rank if the ranks' values are known. */
export function toCsv(tables: Table[]): string {
  const rows: (string | number | null)[][] = [HEADER];
  for (const table of tables) {
    table.first.forEach((first, index) => {
      const steps = [first, table.last[index] as number];
      const at = (column: (number | null)[]) => column[index] ?? null;
      rows.push([table.metric, table.job, "", ...steps, at(table.mean), at(table.low), at(table.high)]);
      for (const [rank, values] of table.ranks) {
        rows.push([table.metric, table.job, rank, ...steps, at(values), null, null]);
      }
    });
  }
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

function cell(value: string | number | null): string {
  const text = value === null ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A part of the key of a picture. */
export interface Key {
  label: string;
  color: string;
}

/** A canvas with a title, a key, and a picture, on the page's background. */
export function withTitle(
  picture: HTMLCanvasElement,
  title: string,
  keys: Key[],
  page: HTMLElement,
): HTMLCanvasElement {
  const scale = devicePixelRatio;
  const style = getComputedStyle(page);
  const top = 44 * scale;
  const canvas = document.createElement("canvas");
  canvas.width = picture.width;
  canvas.height = picture.height + top;
  const ctx = canvas.getContext("2d") as CanvasRenderingContext2D;
  ctx.fillStyle = backgroundOf(page);
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = style.color;
  ctx.font = `600 ${13 * scale}px ${style.fontFamily}`;
  ctx.fillText(title, 10 * scale, 18 * scale, canvas.width - 20 * scale);
  ctx.font = `${11 * scale}px ${style.fontFamily}`;
  let x = 10 * scale;
  for (const { label, color } of keys) {
    ctx.fillStyle = color;
    ctx.fillRect(x, 29 * scale, 12 * scale, 3 * scale);
    ctx.fillStyle = style.color;
    ctx.fillText(label, x + 17 * scale, 34 * scale);
    x += ctx.measureText(label).width + 33 * scale;
  }
  ctx.drawImage(picture, 0, top);
  return canvas;
}

/** Has the browser store a file. */
export function download(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function backgroundOf(element: HTMLElement): string {
  for (let each: HTMLElement | null = element; each !== null; each = each.parentElement) {
    const color = getComputedStyle(each).backgroundColor;
    if (color !== "rgba(0, 0, 0, 0)" && color !== "transparent") return color;
  }
  return "#ffffff";
}
