/** Dialogs and menus: behaviour from React Aria, look from our own CSS. */

import type { ReactNode } from "react";
import {
  Button,
  Dialog,
  Heading,
  Menu,
  MenuItem,
  MenuTrigger,
  Modal,
  ModalOverlay,
  Popover,
} from "react-aria-components";
import { Icon, type IconName } from "./icons";

interface ModalDialogProps {
  title: string;
  isOpen: boolean;
  onClose: () => void;
  children: ReactNode;
  /** An alert dialog asks before something that cannot be undone. */
  role?: "dialog" | "alertdialog";
  size?: "small" | "wide" | "sheet";
}

export function ModalDialog({ title, isOpen, onClose, children, role = "dialog", size = "small" }: ModalDialogProps) {
  return (
    <ModalOverlay className="overlay" isDismissable isOpen={isOpen} onOpenChange={(open) => !open && onClose()}>
      <Modal className={`modal modal-${size}`}>
        <Dialog className="dialog" role={role}>
          <header className="dialog-head">
            <Heading slot="title" className="title">
              {title}
            </Heading>
            <button type="button" className="icon-button" aria-label="Close" onClick={onClose}>
              <Icon name="close" />
            </button>
          </header>
          {children}
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}

export interface MenuAction {
  id: string;
  text: string;
  danger?: boolean;
  onAction?: () => void;
  /** A file that the server makes, to be downloaded. */
  download?: string;
}

interface ActionMenuProps {
  label: string;
  icon?: IconName;
  actions: MenuAction[];
}

export function ActionMenu({ label, icon = "menu", actions }: ActionMenuProps) {
  return (
    <MenuTrigger>
      <Button className="icon-button" aria-label={label}>
        <Icon name={icon} />
      </Button>
      <Popover className="popover" placement="bottom end">
        <Menu className="menu" onAction={(id) => actions.find((action) => action.id === id)?.onAction?.()}>
          {actions.map(({ id, text, danger, download }) => (
            <MenuItem
              key={id}
              id={id}
              className={danger ? "menu-item danger" : "menu-item"}
              {...(download && { href: download, download: true })}
            >
              {text}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}

interface CheckMenuProps {
  label: string;
  text: string;
  icon?: IconName;
  options: { id: string; text: string }[];
  selected: string[];
  onChange: (selected: string[]) => void;
}

/** A button that opens a list of options, any number of which can be on. */
export function CheckMenu({ label, text, icon, options, selected, onChange }: CheckMenuProps) {
  return (
    <MenuTrigger>
      <Button className="button" aria-label={label}>
        {icon && <Icon name={icon} />}
        {text}
        <Icon name="down" className="small" />
      </Button>
      <Popover className="popover" placement="bottom start">
        <Menu
          className="menu"
          selectionMode="multiple"
          selectedKeys={selected}
          onSelectionChange={(keys) => onChange(keys === "all" ? options.map(({ id }) => id) : [...keys].map(String))}
        >
          {options.map(({ id, text: name }) => (
            <MenuItem key={id} id={id} className="menu-item" textValue={name}>
              {({ isSelected }) => (
                <>
                  <span className="menu-check">{isSelected && <Icon name="check" />}</span>
                  {name}
                </>
              )}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
