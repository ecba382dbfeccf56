import { createRoot } from "react-dom/client";
import { App } from "./app";
import "./styles/tokens.css";
import "./styles/controls.css";
import "./styles/frame.css";
import "./styles/pages.css";
import "./styles/alerts.css";
import "./styles/compare.css";
import "./styles/ranks.css";

const root = document.getElementById("root");
if (!root) throw new Error("index.html has no #root");
createRoot(root).render(<App />);
