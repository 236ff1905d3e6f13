// A component that is drawn again only if one of its props is another value.
import { Component, type ComponentChild, type ComponentType } from "preact";

export function memo<P extends object>(draw: (props: P) => ComponentChild): ComponentType<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      return Object.keys(next).some((key) => !Object.is(next[key as keyof P], this.props[key as keyof P]));
    }
    override render(): ComponentChild {
      return draw(this.props as P);
    }
  };
}
