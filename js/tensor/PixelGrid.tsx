// A picture with one pixel a cell, stretched to the room there is; pointing at a cell, or moving there
// with the arrow keys, reads it.
import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { arrowOf } from "../ui/keys";
import { useWidth } from "../ui/useWidth";

export interface Cell {
  down: number;
  across: number;
}

/** Something drawn in a cell. */
export interface Mark extends Cell {
  glyph: string;
}

interface Props {
  label: string;
  height: number;
  width: number;
  /** Height on the screen for each pixel of width. */
  ratio: number;
  pixels: Uint8ClampedArray<ArrayBuffer>;
  /** What is said about a cell. */
  read: (cell: Cell) => ComponentChildren;
  /** What is said while no cell is pointed at. */
  idle?: ComponentChildren;
  /** What is drawn in some cells, where these are large enough. */
  marks?: readonly Mark[];
  /** A press on a cell, or Enter. */
  onSelect?: (cell: Cell) => void;
  /** A cell that is ringed. */
  marked?: Cell | null;
  stale?: boolean;
  /** Shown between the picture and what is read. */
  legend?: ComponentChildren;
  /** Drawn under the picture. */
  children?: ComponentChildren;
}

const FAR = 10;
/** Smaller cells, in px, have no room for a letter. */
const LETTER = 8;
const MOST_MARKS = 400;

function clamp(value: number, most: number): number {
  return Math.min(most, Math.max(0, value));
}

/** Left, top, width and height of a cell in percent of the picture. */
function place({ down, across }: Cell, height: number, width: number): Record<string, string> {
  return {
    left: `${(100 * across) / width}%`,
    top: `${(100 * down) / height}%`,
    width: `${100 / width}%`,
    height: `${100 / height}%`,
  };
}

function usePixels({ height, width, pixels }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || height * width === 0) return;
    context.putImageData(new ImageData(pixels, width, height), 0, 0);
  }, [pixels, height, width]);
  return canvas;
}

export function PixelGrid(props: Props): JSX.Element {
  const { height, width, ratio, marked, stale } = props;
  const canvas = usePixels(props);
  const [box, room] = useWidth<HTMLDivElement>(340);
  const letter = Math.min(room / Math.max(1, width), Math.min(280, room * ratio) / Math.max(1, height));
  const [held, setCell] = useState<Cell | null>(null);
  const cell = held && held.down < height && held.across < width ? held : null;
  const onPointerMove = (event: PointerEvent): void => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    setCell({
      down: clamp(Math.floor(((event.clientY - box.top) / box.height) * height), height - 1),
      across: clamp(Math.floor(((event.clientX - box.left) / box.width) * width), width - 1),
    });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if ((event.key === "Enter" || event.key === " ") && cell && props.onSelect) {
      event.preventDefault();
      props.onSelect(cell);
    }
    const arrow = arrowOf(event);
    if (!arrow) return;
    event.preventDefault();
    event.stopPropagation();
    const step = event.shiftKey ? FAR : 1;
    const from = cell ?? marked ?? { down: 0, across: 0 };
    if (!cell) return setCell(from);
    setCell({
      down: clamp(from.down + step * arrow.down, height - 1),
      across: clamp(from.across + step * arrow.across, width - 1),
    });
  };
  return (
    <>
      <div
        class="etv-grid"
        ref={box}
        style={{ aspectRatio: `1 / ${ratio}` }}
        data-stale={stale ? true : undefined}
        role="img"
        aria-label={props.label}
        tabIndex={0}
        onPointerMove={onPointerMove}
        onPointerLeave={() => setCell(null)}
        onKeyDown={onKeyDown}
        onBlur={() => setCell(null)}
        onClick={() => cell && props.onSelect?.(cell)}
      >
        {props.children}
        <canvas ref={canvas} width={width} height={height} />
        {letter >= LETTER &&
          props.marks?.slice(0, MOST_MARKS).map((mark) => (
            <span
              key={mark.down * width + mark.across}
              class="etv-grid-letter"
              style={{ ...place(mark, height, width), fontSize: `${Math.min(13, letter - 1)}px` }}
            >
              {mark.glyph}
            </span>
          ))}
        {marked && !cell && <span class="etv-grid-mark" style={place(marked, height, width)} />}
        {cell && <span class="etv-grid-cell" style={place(cell, height, width)} />}
      </div>
      {props.legend}
      <p class="etv-reading etv-grid-reading" aria-live="polite">
        {cell ? props.read(cell) : props.idle}
      </p>
    </>
  );
}
