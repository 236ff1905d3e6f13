// The icons of the side bar: bars of two lengths for a panel, an unequal sign for the list.
// The class names let JupyterLab colour them by its theme.

export interface IconRenderer {
  render(host: HTMLElement): void;
}

const BARS = '<path d="M3 3h2v18H3zM7 5h13v4H7zM7 11h6v4H7zM7 17h9v3H7z"/>';
const UNEQUAL =
  '<path d="M3 7h9.4l1.9-3.6 1.8.9L14.7 7H21v2.6h-7.7l-2.4 4.8H21V17H9.5l-2 3.7-1.8-.9L7.2 17H3v-2.6h5.6L11 9.6H3z"/>';

function icon(paths: string): IconRenderer {
  return {
    render(host) {
      host.innerHTML = `<svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true"><g class="jp-icon3" fill="#616161">${paths}</g></svg>`;
    },
  };
}

export const panelIcon = icon(BARS);
export const listIcon = icon(UNEQUAL);
