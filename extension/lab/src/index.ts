/**
 * notebook-accel in the frame of JupyterLab and Notebook.
 *
 *     jobsPlugin.ts   ─ the sidebar with the user's jobs, and its commands
 *     statusPlugin.ts ─ the running job in the status bar
 *     ranksPlugin.ts  ─ where cells run: a control in the notebook's toolbar, a button in the cell's
 *     cellsMode.ts    ─ asks the kernel where cells run, and changes it
 *     server.ts       ─ requests to the Jupyter server
 *     comparison.ts   ─ a tab that compares a metric of several jobs; comparisonChart.ts draws it
 *     marks.ts        ─ asks for the name, the notes, and the pin of a job
 *     deviceSection.ts ─ the devices in the sidebar
 *     jobTab.ts       ─ a tab with the panel of a job
 *     servedPanel.ts  ─ the panel of a job, in a tab or below a cell; jobLink.ts asks the server for what it shows
 *     jobs.ts         ─ the jobs, asked for while someone looks
 *     outputPlugin.ts ─ the jobs below the cells of a notebook; jobOutput.ts draws one
 */
import jobs from "./jobsPlugin";
import output from "./outputPlugin";
import ranks from "./ranksPlugin";
import status from "./statusPlugin";

export default [jobs, status, ranks, output];
