// Draws the figures of a saved report in the theme that the reader's system asks for. The figures come whole from the
// server; all that is done here is putting colours where their roles are named.
(function () {
  "use strict";
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const TOKEN = /^role\(([a-z0-9]+)(?:,([\d.]+))?\)$/;

  function color(role, opacity, palette) {
    const hex = palette[role] || palette.text;
    if (opacity === undefined) return hex;
    const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
    return `rgba(${red},${green},${blue},${opacity})`;
  }

  function painted(value, palette) {
    if (typeof value === "string") {
      const found = TOKEN.exec(value);
      return found ? color(found[1], found[2], palette) : value;
    }
    if (Array.isArray(value)) return value.map((item) => painted(item, palette));
    if (value === null || typeof value !== "object" || "bdata" in value) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, painted(item, palette)]));
  }

  function draw() {
    const palette = themes[dark.matches ? "dark" : "light"];
    for (const [id, figure] of Object.entries(figures)) {
      const { data, layout } = painted(figure, palette);
      Plotly.react(document.getElementById(id), data, layout, { displayModeBar: false, displaylogo: false, responsive: true });
    }
  }

  dark.addEventListener("change", draw);
  draw();
})();
