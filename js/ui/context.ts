// The state of the view, reachable from every component in it.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { App } from "../state/app";

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (!app) throw new Error("a component of etviz was rendered outside of <EtvizApp>");
  return app;
}
