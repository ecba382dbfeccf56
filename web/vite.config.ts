import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

/** Where `npm run dev` finds a running `halfscope serve`. */
const SERVER = process.env.HALFSCOPE_SERVER ?? "http://127.0.0.1:65504";

export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    // Plotly's cartesian bundle is one lazy chunk of about 1.4 MB; everything else stays far below.
    chunkSizeWarningLimit: 1600,
    modulePreload: { polyfill: false },
  },
  experimental: {
    // index.html names absolute addresses, which a server behind a path prefix rewrites in that one file; scripts and styles
    // find each other relative to themselves, so nothing else needs to know the prefix.
    renderBuiltUrl: (filename, { hostType }) => (hostType === "html" ? `/${filename}` : { relative: true }),
  },
  server: { proxy: { "/api": { target: SERVER, ws: true, changeOrigin: true } } },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"], pool: "threads", isolate: false },
});
