import { resolve } from "node:path";
import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: { alias: { "lit-html": resolve("node_modules/lit-html") } }, // as in the build, without its checks
  test: { environment: "happy-dom", include: ["{test,lab/test}/**/*.test.ts"] },
});
