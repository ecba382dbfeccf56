/** What can be done about a bad stretch: open the layer it leads to at its step, zoom to it, list its events. */

import { useRef } from "react";
import { Header, Menu, MenuItem, MenuSection, Popover } from "react-aria-components";
import { layersAddress } from "../layers/address";
import { formatCount, shortenMiddle } from "../lib/format";
import { navigate } from "../lib/router";
import { Icon, SEVERITY_ICON } from "../ui/icons";
import type { Pick } from "./Strip";

interface BadMenuProps {
  run: string;
  pick: Pick;
  /** Whether any layer was sketched: without one there is nothing to open. */
  hasLayers: boolean;
  /** The stretch with room on both sides. */
  around: readonly [number, number];
  onZoom: () => void;
  onClose: () => void;
}

/** Stands inside the strip's own box, under the mark that was clicked. */
export function BadMenu({ run, pick, hasLayers, around, onZoom, onClose }: BadMenuProps) {
  const anchor = useRef<HTMLSpanElement>(null);
  const { range, at } = pick;
  const { layer = "", lane } = range;
  const step = range.step ?? range.first_step;
  const open = () =>
    navigate(
      layersAddress(run, { layer, step, stat: lane === "underflow" ? "underflow" : "nonfinite", range: around }),
    );
  return (
    <>
      <span ref={anchor} className="strip-anchor" style={{ left: `${at * 100}%` }} />
      <Popover
        className="popover"
        triggerRef={anchor}
        isOpen
        onOpenChange={(isOpen) => !isOpen && onClose()}
        placement="bottom"
      >
        <Menu className="menu bad-menu" aria-label={range.text} autoFocus="first" onClose={onClose}>
          <MenuSection>
            <Header className="bad-menu-head">
              <Icon name={SEVERITY_ICON[range.severity]} className={`small severity-${range.severity}`} />
              {range.text}
            </Header>
            {hasLayers && (
              <MenuItem
                id="layer"
                className="menu-item"
                textValue={`Open ${layer || "the layers"} at step ${formatCount(step)}`}
                onAction={open}
              >
                <span>
                  Open {layer ? <span className="mono">{shortenMiddle(layer, 36)}</span> : "the layers"} at step{" "}
                  {formatCount(step)}
                </span>
              </MenuItem>
            )}
            <MenuItem id="zoom" className="menu-item" onAction={onZoom}>
              {range.first_step === range.last_step
                ? `Zoom to step ${formatCount(range.first_step)}`
                : `Zoom to steps ${formatCount(range.first_step)}-${formatCount(range.last_step)}`}
            </MenuItem>
            <MenuItem
              id="events"
              className="menu-item"
              onAction={() => navigate(`/runs/${run}/events?r=${around[0]}-${around[1]}`)}
            >
              List the events
            </MenuItem>
          </MenuSection>
        </Menu>
      </Popover>
    </>
  );
}
