/** Charts of a run in the page's grid; a zoom in one is the page's. */

import { ofRun } from "../api/queries";
import type { PanelInfo, Window } from "../api/types";
import { PanelCard } from "../chart/PanelCard";
import { PanelGrid } from "../chart/PanelGrid";
import { usePhone } from "../lib/hooks";
import { setRange } from "./view";

interface RunPanelsProps {
  run: string;
  panels: PanelInfo[];
  window: Window;
  onVisible: (panel: string, visible: boolean) => void;
}

export function RunPanels({ run, panels, window, onVisible }: RunPanelsProps) {
  const phone = usePhone();
  return (
    <PanelGrid panels={panels} phone={phone}>
      {(info) => (
        <PanelCard
          key={info.id}
          source={ofRun(run)}
          info={info}
          window={window}
          onVisible={onVisible}
          onZoom={setRange}
        />
      )}
    </PanelGrid>
  );
}
