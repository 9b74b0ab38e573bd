// Builds what the package ships: esbuild makes one module of src/, and JupyterLab's builder makes of it what JupyterLab and
// Notebook load. `node build.mjs DIRECTORY` puts it elsewhere, to compare.
import { execFileSync } from "node:child_process";
import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { build } from "esbuild";

const target = process.argv[2] ?? "built";
const stage = "stage"; // always the same, since the builder makes names of it

rmSync(stage, { recursive: true, force: true });
await build({
  entryPoints: ["src/index.ts"],
  outdir: `${stage}/lib`,
  splitting: true, // what is imported later is loaded later
  bundle: true,
  format: "esm",
  target: ["es2022"],
  charset: "utf8",
  packages: "external",
  // parts of the module, as in the panel
  alias: { uplot: resolve("../node_modules/uplot/dist/uPlot.esm.js"), "lit-html": resolve("../node_modules/lit-html") },
});
await build({ entryPoints: ["style/index.css"], outfile: `${stage}/style/index.css`, bundle: true, charset: "utf8" });
for (const name of ["schema", "webpack.config.cjs"]) cpSync(name, `${stage}/${name}`, { recursive: true });
const { devDependencies, overrides, scripts, engines, ...shipped } = JSON.parse(readFileSync("package.json", "utf8"));
// The version is Python's, in the form in which JupyterLab's extension manager compares it with PyPI's
const [, python] = /__version__ = "(.+)"/.exec(readFileSync("../../notebook_accel/__init__.py", "utf8"));
const kinds = { a: "alpha", b: "beta", rc: "rc" };
const version = python.replace(/(a|b|rc)(?=\d+$)/, (kind) => `-${kinds[kind]}.`);
writeFileSync(`${stage}/package.json`, JSON.stringify({ ...shipped, version }, null, 2));
const builder = createRequire(import.meta.url).resolve("@jupyterlab/builder/lib/build-labextension.js");
execFileSync(process.execPath, [builder, "--core-path", "../oldest", "."], { cwd: stage, stdio: "inherit" });
rmSync(target, { recursive: true, force: true });
cpSync(`${stage}/built`, target, { recursive: true });
rmSync(stage, { recursive: true });
