const MESSAGES = [
  "",
  "a row is refused: the model does not take such a value (NaN or infinity, perhaps)",
  "a text is too long",
  "a text is not UTF-8",
];

async function own() {
  const url = new URL(`./${SPEC.name}.wasm`, import.meta.url);
  if (url.protocol !== "file:") return (await fetch(url)).arrayBuffer();
  return (await import("node:fs/promises")).readFile(url);
}

export async function load(bytes) {
  const { instance } = await WebAssembly.instantiate(bytes ?? (await own()), {});
  return new Model(instance.exports);
}

class Model {
  constructor(exports) {
    this.exports = exports;
    const bytes = new Uint8Array(exports.memory.buffer);
    const start = exports[`${SPEC.name}_version`]();
    this.version = new TextDecoder().decode(bytes.subarray(start, bytes.indexOf(0, start)));
  }

  predict(input) {
    const columns = SPEC.inputs.map((column) => taken(input, column));
    const counts = columns.map((column, k) => column.length / SPEC.inputs[k].width);
    const rows = Math.floor(counts[0]);
    counts.forEach((count, k) => {
      if (count !== rows) {
        const { label, width } = SPEC.inputs[k];
        const wanted = `${rows} rows of ${width}`;
        throw new RangeError(`column ${label}: ${columns[k].length} values, not ${wanted}`);
      }
    });
    return this.answer(columns, rows);
  }

  answer(columns, rows) {
    let end = align(this.exports.__heap_base.value);
    const room = (size) => {
      const start = end;
      end = align(end + size);
      return start;
    };
    const texts = columns.map((column, k) => (isText(k) ? column : null));
    const longest = texts.flat().reduce((most, each) => Math.max(most, each?.length ?? 0), 0);
    const inputs = columns.map((column, k) => room(column.length * itemBytes(SPEC.inputs[k])));
    const sizes = texts.map((each) => each?.reduce((sum, { length }) => sum + (length ?? 0), 0));
    const bodies = sizes.map((size) => room(size ?? 0));
    const outputs = SPEC.outputs.map((each) => room(rows * each.width * itemBytes(each)));
    const given = room(4 * (inputs.length + 1));
    const made = room(4 * outputs.length);
    const scratch = room(this.exports[`${SPEC.name}_scratch_size`](longest) >>> 0);
    const memory = this.exports.memory;
    const missing = end - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    const view = new DataView(memory.buffer);
    columns.forEach((column, k) => {
      if (isText(k)) writeTexts(view, inputs[k], bodies[k], texts[k]);
      else new globalThis[SPEC.inputs[k].kind](memory.buffer, inputs[k], column.length).set(column);
    });
    [...inputs, longest].forEach((word, k) => view.setUint32(given + 4 * k, word, true));
    outputs.forEach((word, k) => view.setUint32(made + 4 * k, word, true));
    const code = this.exports[`${SPEC.name}_predict`](given, made, rows, scratch);
    if (code !== 0) throw new RangeError(MESSAGES[code]);
    const answers = SPEC.outputs.map((each, k) => {
      const kind = globalThis[each.kind];
      return [each.label, answerOf(each, new kind(memory.buffer, outputs[k], rows * each.width))];
    });
    return Object.fromEntries(answers);
  }
}

const align = (size) => Math.ceil(size / 64) * 64;
const isText = (k) => SPEC.inputs[k].kind === "text";
const itemBytes = ({ kind }) => (kind === "text" ? 16 : globalThis[kind].BYTES_PER_ELEMENT);
const encoder = new TextEncoder();

const isArray = (value) => typeof value === "object" && Number.isInteger(value?.length);

function taken(input, column) {
  const { label, kind, width, bool } = column;
  let given = input?.[label];
  if (!isArray(given)) throw new TypeError(`column ${label} is missing, or no array`);
  if (width > 1 && typeof given[0] === "object" && given[0] !== null) {
    given = Array.from(given, (row, k) => {
      if (isArray(row) && row.length === width) return Array.from(row);
      const found = isArray(row) ? `${row.length} values` : "no array";
      throw new RangeError(`column ${label}: row ${k} has ${found} where ${width} values go`);
    }).flat();
  }
  if (kind === "text") return Array.from(given, (value) => encoded(value, column));
  if (given instanceof globalThis[kind] && !bool) return given;
  return globalThis[kind].from(given, (value) => number(value, column));
}

function number(value, { label, kind, bool }) {
  const float = kind.startsWith("Float");
  const big = kind.startsWith("Big");
  if (float && (value === null || value === undefined)) return NaN;
  if (float && typeof value === "number") return value;
  const exact = big ? Number.isSafeInteger(value) : Number.isInteger(value);
  const one = typeof value === "bigint" || typeof value === "boolean" || exact;
  const made = one && big ? BigInt(value) : one && Number(value);
  const fits = float || (globalThis[kind].of(made)[0] === made && !(bool && made > 1));
  if (one && fits) return made;
  const hint = big && Number.isInteger(value) ? ", which is exact as a BigInt only" : "";
  throw new TypeError(`column ${label}: ${String(value)} is not a number of its type${hint}`);
}

// Its bytes, or -1 for None and -2 for NaN; null is what the model knows of these.
function encoded(value, { label, missing }) {
  if (value === null || value === undefined) return missing;
  if (Number.isNaN(value)) return -2;
  if (typeof value === "string" && !/\p{Surrogate}/u.test(value)) return encoder.encode(value);
  throw new TypeError(`column ${label}: ${JSON.stringify(value)} is no text`);
}

function writeTexts(view, cells, start, texts) {
  const bytes = new Uint8Array(view.buffer);
  texts.forEach((text, row) => {
    const missing = typeof text === "number";
    view.setUint32(cells + 16 * row, start, true);
    view.setUint32(cells + 16 * row + 4, 0, true);
    view.setBigInt64(cells + 16 * row + 8, BigInt(missing ? text : text.length), true);
    if (missing) return;
    bytes.set(text, start);
    start += text.length;
  });
}

function answerOf({ kind, labels, bool }, array) {
  if (labels) return Array.from(array, (place) => labels[Number(place)]);
  if (bool) return Array.from(array, Boolean);
  const plain = (value) => (Number.isSafeInteger(Number(value)) ? Number(value) : value);
  return kind.startsWith("Big") ? Array.from(array, plain) : array.slice();
}
