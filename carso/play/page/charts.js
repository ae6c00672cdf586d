// Pictures, bars and the line of an attack's steps, as elements of the page.

export function made(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export const picture = (png) => `data:image/png;base64,${png}`;

export function figure(png, words, alt) {
  return made("figure", {}, made("img", { src: picture(png), alt }), made("figcaption", {}, ...words));
}

const MOST = 10; // classes that are shown; of more, the likeliest

export function bars(seen, classes, truth) {
  const order = classes.map((_, i) => i);
  const height = (i) => Math.max(seen.classifier[i], seen.defence[i]);
  const shown = classes.length <= MOST ? order : order.sort((a, b) => height(b) - height(a)).slice(0, MOST);
  const list = made("dl", { className: "bars" });
  for (const i of shown) {
    const name = made("dt", { className: classes[i] === truth ? "truth" : "" }, classes[i]);
    const tracks = made("dd");
    const shares = made("dd", { className: "share" });
    for (const who of ["classifier", "defence"]) {
      const bar = made("i", { className: who });
      bar.style.width = `${100 * seen[who][i]}%`;
      tracks.append(made("div", { className: "track" }, bar));
      shares.append(made("div", { title: who }, `${(100 * seen[who][i]).toFixed(1)} %`));
    }
    list.append(name, tracks, shares);
  }
  return list;
}

export function candidates(seen, truth) {
  return made("div", { className: "candidates" }, ...seen.candidates.map((one) => {
    const share = `${(100 * one.share).toFixed(0)}\u00a0%`;
    const bar = made("i", { className: "classifier" });
    bar.style.width = `${100 * one.share}%`;
    const found = figure(one.picture, [made("div", { className: "track" }, bar), one.label, made("br"), share], `A candidate, which the classifier calls ${one.label}`);
    found.className = one.label === truth ? "" : "wrong";
    return found;
  }));
}

export function key() {
  const entry = (name, words) => made("span", {}, made("i", { className: name }), words);
  return made("div", { className: "key" }, entry("classifier", "classifier alone"), entry("defence", "whole defence"));
}

const SVG = "http://www.w3.org/2000/svg";

function line(kind, attributes) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// The margin at each step, and a mark at the one that is looked at.
export function drawSteps(svg, steps, at) {
  const values = steps.map((step) => step.margin);
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const x = (i) => (100 * i) / Math.max(1, steps.length - 1);
  const y = (value) => 100 - (100 * (value - low)) / (high - low || 1);
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-label", `The lead of the right class, from ${values[0].toFixed(2)} at the first step to ${values.at(-1).toFixed(2)} at the last`);
  svg.replaceChildren(
    line("line", { class: "zero", x1: 0, x2: 100, y1: y(0), y2: y(0), "vector-effect": "non-scaling-stroke" }),
    line("polyline", { points: values.map((value, i) => `${x(i)},${y(value)}`).join(" ") }),
    line("line", { class: "at", x1: x(at), x2: x(at), y1: 0, y2: 100 }),
  );
}
