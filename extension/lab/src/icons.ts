/** The icons of the extension. */
import { LabIcon } from "@jupyterlab/ui-components";

/** Four ranks. */
export const jobsIcon = new LabIcon({
  name: "notebook-accel:jobs",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">' +
    '<rect x="3" y="4" width="18" height="3" rx="1"/><rect x="3" y="8.5" width="13" height="3" rx="1"/>' +
    '<rect x="3" y="13" width="16" height="3" rx="1"/><rect x="3" y="17.5" width="9" height="3" rx="1"/></g></svg>',
});

/** One cell, several ranks. */
export const ranksIcon = new LabIcon({
  name: "notebook-accel:ranks",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">' +
    '<rect x="2" y="9" width="6" height="6" rx="1"/><rect x="16" y="2" width="6" height="5" rx="1"/>' +
    '<rect x="16" y="9.5" width="6" height="5" rx="1"/><rect x="16" y="17" width="6" height="5" rx="1"/>' +
    '<path d="M8 11.3h4V4h4v1.4h-2.6v5.9H16v1.4h-2.6v5.9H16V20h-4v-7.3H8z"/></g></svg>',
});
