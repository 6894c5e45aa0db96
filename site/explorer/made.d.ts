/* What `python -m tools`, or building the site, writes into made.js. */
import type { About, Run } from "./types.js";

export interface Station {
  key: string;
  label: string;
  title: string;
  text: string;
  formula: string;
  code: string;
  source: string;
  shapes: [string, string][];
  notebook: string;
  file: string;
}
export const stations: Station[];
/** Sizes of Llama 3.2-1B by the letters of shapes. */
export const large: Record<string, number>;
/** The colours of the notebooks' pictures: by role, and two scales of red, green and blue. */
export const colours: Record<string, string>;
export const scales: { amount: number[][]; signed: number[][] };
/** What this page can run, and the runs that were recorded. */
export const models: About[];
export const runs: Run[];
