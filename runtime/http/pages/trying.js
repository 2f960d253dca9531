"use strict";
// Sends the form's row to the model, and shows its answer and the share of each column.
const form = document.querySelector("form.try");
const place = document.getElementById("answer");

function element(tag, text, look) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (look) made.className = look;
  return made;
}

// One column of the form as a tensor; an empty number is a missing value.
function tensor({ name, value, dataset: { datatype, width } }) {
  const read = (text) =>
    datatype === "BYTES" ? text : datatype === "BOOL" ? text === "true" : text.trim() === "" ? null : Number(text);
  const texts = width ? value.split(",") : [value];
  return { name, datatype, shape: width ? [1, texts.length] : [1], data: texts.map(read) };
}

async function ask(explain) {
  const inputs = [...form.elements].filter((each) => each.name).map(tensor);
  const body = JSON.stringify({ parameters: { explain }, inputs });
  const answer = await fetch(form.dataset.to, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  return [answer.ok, await answer.json()];
}

function table(rows) {
  const made = document.createElement("table");
  for (const cells of rows) {
    const row = made.insertRow();
    for (const cell of cells) row.append(cell);
  }
  return made;
}

function outputs(body) {
  return table(body.outputs.map(({ name, data }) => [element("td", name, "name"), element("td", data.join(", "), "result")]));
}

// Shares of the score with the largest contributions first; of several scores, of the largest.
function shares({ output, rows: [{ score, shares }] }) {
  const which = Array.isArray(score) ? score.indexOf(Math.max(...score)) : null;
  const one = (value) => (which === null ? value : value[which]);
  const found = Object.entries(shares).map(([name, value]) => [name, one(value)]);
  found.sort(([, left], [, right]) => Math.abs(right) - Math.abs(left));
  const most = Math.max(...found.map(([, value]) => Math.abs(value)), Number.MIN_VALUE);
  const rows = found.slice(0, 30).map(([name, value]) => {
    const bar = element("div", "", value < 0 ? "bar down" : "bar");
    bar.style.width = `${(100 * Math.abs(value)) / most}%`;
    const cell = element("td", "", "share");
    cell.append(bar);
    return [element("td", name, "name"), element("td", value.toPrecision(4), "number"), cell];
  });
  return [element("h2", `Share of each column in ${output}`), table(rows)];
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    let [good, body] = await ask(true);
    let why = "";
    if (!good) {
      why = body.error;
      [good, body] = await ask(false);
    }
    if (!good) place.replaceChildren(element("p", body.error, "bad"));
    else if (why) place.replaceChildren(outputs(body), element("p", `no shares: ${why}`, "dim"));
    else place.replaceChildren(outputs(body), ...shares(body.parameters.attribution));
  } catch (problem) {
    place.replaceChildren(element("p", String(problem), "bad"));
  }
});
