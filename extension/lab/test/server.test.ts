import { expect, test, vi } from "vitest";

const NetworkError = vi.hoisted(() => class extends Error {});
const makeRequest = vi.hoisted(() => vi.fn());
vi.mock("@jupyterlab/coreutils", () => ({ URLExt: { join: (...parts: string[]) => parts.join("/") } }));
vi.mock("@jupyterlab/services", () => ({
  ServerConnection: { NetworkError, makeRequest, makeSettings: () => ({ baseUrl: "" }) },
}));

import { isUnreachable, listDevices } from "../src/server";

test("a server that doesn't answer is named, and not the request that has failed", async () => {
  makeRequest.mockRejectedValue(new NetworkError("Failed to fetch"));
  const error = await listDevices().catch((each: Error) => each);
  expect(error).toHaveProperty("message", expect.stringContaining("The Jupyter server can't be reached."));
  expect(isUnreachable(error as Error)).toBe(true); // so the page asks again
});
