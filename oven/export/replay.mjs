// Answers the columns of a file, which oven.export.replay writes, by the package beside this script.
import { readFileSync, writeFileSync } from "node:fs";
import { load } from "./index.js";

const file = process.argv[2];
const arrays = { float64: Float64Array, float32: Float32Array };
const wide = { int64: BigInt64Array, uint64: BigUint64Array };
const numbers = (kind, data) =>
  new { ...arrays, ...wide }[kind](new Uint8Array(Buffer.from(data, "base64")).buffer);
const decoded = ([label, kind, data]) => [
  label,
  kind ? numbers(kind, data) : data.map((value) => (value?.nan ? NaN : value)),
];
const columns = JSON.parse(readFileSync(file, "utf8")).map(decoded);
const output = (await load()).predict(Object.fromEntries(columns));
const answers = Object.entries(output).map(([label, value]) => {
  const kind = Object.keys(arrays).find((each) => value instanceof arrays[each]);
  if (kind) return [label, Buffer.from(value.buffer).toString("base64")];
  return [label, Array.from(value, (each) => (typeof each === "bigint" ? String(each) : each))];
});
writeFileSync(file, JSON.stringify(Object.fromEntries(answers)));
