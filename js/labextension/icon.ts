// The icons of the side bar: bars of a table, and the same in a frame for the list.
// The class names let JupyterLab colour them by its theme.

export interface IconRenderer {
  render(host: HTMLElement): void;
}

const BARS = '<path d="M4 6h11v3H4zM4 10.5h16v3H4zM4 15h7v3H4z"/>';
const LIST = '<path d="M3 5h3v3H3zM8 5h13v3H8zM3 10.5h3v3H3zM8 10.5h9v3H8zM3 16h3v3H3zM8 16h6v3H8z"/>';

function icon(paths: string): IconRenderer {
  return {
    render(host) {
      host.innerHTML = `<svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true"><g class="jp-icon3" fill="#616161">${paths}</g></svg>`;
    },
  };
}

export const panelIcon = icon(BARS);
export const listIcon = icon(LIST);
