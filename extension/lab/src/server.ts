/** Requests to the extension of the Jupyter server (`notebook_accel/jupyter/handlers.py`). */
import { URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";
import type { Marks } from "./marks";
import type { Comparison, DeviceListing, JobListing, NotedOutput, ServedUpdate } from "./model";

const MISSING =
  "This Jupyter server doesn't have notebook-accel's extension. Install notebook-accel where Jupyter itself is " +
  "installed, and restart the server.";
const UNREACHABLE =
  "The Jupyter server can't be reached. What is shown here is from before; it goes on once the server answers.";

/**
 * The user's last jobs.
 * @param brief - Whether progress and metrics are needed only of those that run, which is less work for the server.
 */
export async function listJobs(brief: boolean): Promise<JobListing> {
  return (await ask("GET", ["jobs"], brief ? "?brief=1" : "")).json();
}

/** Whether a job runs, which the server can tell without reading any. */
export async function anyRuns(): Promise<boolean> {
  return (await ask("GET", ["running"])).json();
}

/** Asks a job to stop; a second time, to kill its ranks. */
export async function stopJob(id: string): Promise<void> {
  await ask("POST", ["jobs", id, "stop"]);
}

/** Changes what the user says about a job. */
export async function markJob(id: string, marks: Marks): Promise<void> {
  await ask("PATCH", ["jobs", id], "", marks);
}

/** Deletes a job that has ended. */
export async function deleteJob(id: string): Promise<void> {
  await ask("DELETE", ["jobs", id]);
}

/**
 * Sends what a panel of a job requests, and returns what is new.
 * @param panel - What the page calls the panel.
 * @param seq - The number of the last update that it has; -1 if it has none.
 */
export async function updatePanel(job: string, panel: string, seq: number, messages: object[]): Promise<ServedUpdate> {
  return (await ask("POST", ["jobs", job, "panel"], "", { panel, seq, messages })).json();
}

/** Tells the server that this page draws jobs; a kernel knows the page by the ID of its connection. */
export async function announcePage(session: string): Promise<void> {
  await ask("POST", ["pages", session]);
}

/** Where jobs were drawn in a notebook, given by its path in the server. */
export async function listOutputs(notebook: string): Promise<NotedOutput[]> {
  return (await ask("GET", ["outputs"], `?${new URLSearchParams({ notebook })}`)).json();
}

/** Whether an error is that the server can't be reached. */
export function isUnreachable(error: Error): boolean {
  return error instanceof ServerConnection.NetworkError;
}

/** A metric of several jobs, as far as the server has read it. */
export async function compareJobs(ids: string[], metric: string): Promise<Comparison> {
  const query = new URLSearchParams([...ids.map((id) => ["job", id]), ["metric", metric]]);
  return (await ask("GET", ["comparison"], `?${query}`)).json();
}

/** The devices of the server's machine, measured now. */
export async function listDevices(): Promise<DeviceListing> {
  return (await ask("GET", ["devices"])).json();
}

async function ask(method: string, path: string[], query = "", content?: object): Promise<Response> {
  const settings = ServerConnection.makeSettings();
  const url = URLExt.join(settings.baseUrl, "notebook-accel", ...path) + query;
  const response = await ServerConnection.makeRequest(
    url,
    { method, ...(content && { body: JSON.stringify(content) }) },
    settings,
  ).catch((error: Error) => {
    if (isUnreachable(error)) error.message = UNREACHABLE; // browsers say "Failed to fetch", or something else
    throw error;
  });
  if (response.ok) return response;
  // Jupyter answers with JSON wherever the extension answers at all.
  const answer = (await response.json().catch(() => null)) as { message?: unknown } | null;
  if (response.status === 404 && path.length === 1) throw new Error(MISSING);
  const message = typeof answer?.message === "string" ? answer.message : response.statusText;
  throw new Error(message || `The Jupyter server answered with status ${response.status}.`);
}
