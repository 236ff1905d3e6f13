// The bars by channel: the worst one, tiny errors, empty axes.
import { expect, test } from "vitest";
import type { Channels } from "../state/maps";
import { barPath, channelScales, worstChannel } from "./channelBars";

const frame = { width: 300, height: 150, left: 50, right: 10, top: 10, bottom: 20 };

function channels(rmse: number[]): Channels {
  const values = Float64Array.from(rmse);
  return { row: 0, axis: 1, size: rmse.length, rmse: values, maxAbs: values, share: values };
}

test("the worst channel is the largest that is known", () => {
  expect(worstChannel(Float64Array.from([0, NaN, 3e-9, 1e-9]))).toBe(2);
  expect(worstChannel(Float64Array.from([0, NaN]))).toBe(-1);
});

test("an error of 1e-9 fills the height", () => {
  const scales = channelScales(channels([1e-9, 0.5e-9]), "rmse", frame);
  expect(scales.y(1e-9)).toBe(frame.top);
  expect(scales.y(0)).toBe(frame.height - frame.bottom);
  expect(scales.yTicks.at(-1)?.text).toBe("1e-9");
  expect(scales.channel(scales.x(1) + 1)).toBe(1);
});

test("only channels with an error have a bar", () => {
  const facts = channels([1, 0, NaN, 2]);
  const path = barPath(facts.rmse, channelScales(facts, "rmse", frame));
  expect(path.match(/M/g)).toHaveLength(2);
});
