// Bundles src/ into the files that the package ships. `node build.mjs DIRECTORY` puts them elsewhere, to compare.
import { copyFile } from "node:fs/promises";
import { build } from "esbuild";

const outdir = process.argv[2] ?? "../notebook_accel/notebook/views/browser";

await build({
  entryPoints: { panel: "src/index.ts", "panel-style": "src/theme.css" },
  entryNames: "[name]",
  outdir,
  bundle: true,
  format: "esm",
  target: ["es2022", "chrome111", "firefox113", "safari16.4"],
  minify: true,
  charset: "utf8",
  legalComments: "none",
  banner: { js: "// Built from extension/src by `npm run build` there." },
});

for (const name of ["uplot", "lit-html"])
  await copyFile(`node_modules/${name}/LICENSE`, `${outdir}/${name}-license.txt`);
