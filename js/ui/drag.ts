// Dragging with the pointer captured: reports the distance from where it began.

export interface Drag {
  onMove: (dx: number, dy: number) => void;
  onEnd?: () => void;
}

export function startDrag(event: PointerEvent, drag: Drag): void {
  const handle = event.currentTarget as HTMLElement;
  event.preventDefault();
  handle.setPointerCapture(event.pointerId);
  const { clientX, clientY } = event;
  const move = (at: PointerEvent): void => drag.onMove(at.clientX - clientX, at.clientY - clientY);
  const end = (): void => {
    handle.removeEventListener("pointermove", move);
    handle.removeEventListener("pointerup", end);
    handle.removeEventListener("pointercancel", end);
    drag.onEnd?.();
  };
  handle.addEventListener("pointermove", move);
  handle.addEventListener("pointerup", end);
  handle.addEventListener("pointercancel", end);
}
