// Dragging with the pointer: reports the distance from where it began.

type Move = (dx: number, dy: number) => void;

/** Follow the pointer by the events that `target` hears of, until it is let go. */
export function followPointer(
  { clientX, clientY }: PointerEvent,
  target: EventTarget,
  onMove: Move,
  onEnd: () => void = () => {},
): void {
  const ended = new AbortController();
  const { signal } = ended;
  const move = (event: Event): void => {
    const { clientX: x, clientY: y } = event as PointerEvent;
    onMove(x - clientX, y - clientY);
  };
  const end = (): void => {
    ended.abort();
    onEnd();
  };
  target.addEventListener("pointermove", move, { signal });
  target.addEventListener("pointerup", end, { signal });
  target.addEventListener("pointercancel", end, { signal });
}

/** Drag a handle, which hears of the pointer wherever it goes. */
export function startDrag(event: PointerEvent, onMove: Move): void {
  const handle = event.currentTarget as HTMLElement;
  event.preventDefault();
  handle.setPointerCapture(event.pointerId);
  followPointer(event, handle, onMove);
}
