/** The panels of the Layers page, which the Overview leaves to it. */

export const LAYERS_SECTION = "layers";
export const HEATMAP = "layers-heatmap";
export const WINDOW = "window";
export const HISTOGRAM = "histogram";
