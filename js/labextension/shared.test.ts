// Which copy of a shared module is taken: the one that JupyterLab uses.
import { expect, test } from "vitest";
import { chooseVersion, sharedModule } from "./shared";

const get = (): (() => unknown) => () => "module";

test("a loaded version wins, then the newest", () => {
  expect(chooseVersion({ "2.9.0": { get }, "2.10.1": { get }, "2.1.0": { get } })).toBe("2.10.1");
  expect(chooseVersion({ "2.9.0": { get, loaded: 1 }, "2.10.1": { get } })).toBe("2.9.0");
  expect(chooseVersion({})).toBeNull();
});

test("a module that is not shared is null", async () => {
  expect(await sharedModule({}, "@lumino/widgets")).toBeNull();
  expect(await sharedModule({ "@lumino/widgets": { "2.0.0": { get } } }, "@lumino/widgets")).toBe("module");
});
