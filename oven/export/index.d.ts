// @ABOUT@
/** A column of each name, with as many values as there are rows. */
export interface Input {
@INPUTS@
}
export interface Output {
@OUTPUTS@
}
export interface Model {
  /** The answers for these columns; an Error for what the model refuses. */
  predict(input: Input): Output;
  /** Name, version and digests. */
  readonly version: string;
}
/** The model, from the module beside this file or from its bytes. */
export function load(bytes?: BufferSource): Promise<Model>;
