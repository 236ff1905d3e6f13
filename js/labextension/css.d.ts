// esbuild reads a style sheet of the extension as text.
declare module "*.css" {
  const text: string;
  export default text;
}
