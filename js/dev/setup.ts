// Runs around every test: no view stays in the page.
import { afterEach } from "vitest";
import { closeViews } from "./view";

afterEach(closeViews);
