// The page: what is picked goes to the server, what comes back is drawn.
import { bars, candidates, drawSteps, figure, key, made, picture } from "./charts.js";
import { Drawing } from "./drawing.js";

const at = (id) => document.getElementById(id);
const picked = (name) => document.querySelector(`input[name=${name}]:checked`)?.value;
const drawing = new Drawing(at("canvas"));
const page = { shapes: {}, reach: {}, defence: null, start: 0, tab: "attack", steps: [], upload: "", refused: "", turn: 0 };
const USUAL = { Linf: 0.1, L2: 1.5 };  // eps in a norm that a defence was not trained in

async function asked(path, sent) {
  const options = sent && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(sent) };
  const response = await fetch(path, options).catch(() => { throw new Error("no answer: is carso play still running?"); });
  const found = await response.json().catch(() => ({ error: `the server says ${response.status}` }));
  if (!response.ok) throw new Error(found.error);
  return found;
}

function say(words, wrong = false) {
  at("verdict").textContent = words;
  at("verdict").classList.toggle("wrong", wrong);
  if (wrong) clearResult();
}

function clearResult() {
  at("took").textContent = "";
  at("pictures").replaceChildren();
  at("parties").replaceChildren();
  at("way").hidden = true;
}

const attempt = (work) => async (event) => {
  event?.preventDefault();
  try { await work(event); } catch (error) { say(error.message, true); }
};

// Picking

const fill = (id, entries) => at(id).replaceChildren(...entries.map(([value, words]) => made("option", { value }, words)));

async function pickDefence() {
  const name = at("defence").value;
  const one = page.defence = await asked(`/api/defence?name=${encodeURIComponent(name)}`);
  const fitting = Object.entries(page.shapes).filter(([other, shape]) => other !== name && String(shape) === String(one.shape));
  fill("against", fitting.map(([other]) => [other, other]));
  const count = one.samples === 1 ? "1 candidate" : `${one.samples} candidates`;
  const own = one.own_counts ? "; what the classifier itself says of the image counts as well" : "";
  at("about").textContent = `${one.summary}. ${one.hardened ? "Hardened" : "The paper's purifier"}, ${count}${own}.`;
  const [channels, height, width] = one.shape;
  at("fits").textContent = `It takes ${width}x${height} pixels, ${channels === 1 ? "grey" : "in colour"}; another size is not resized.`;
  drawing.resize(height, width);
  fill("label", [["", "what the classifier says"], ...one.classes.map((label, i) => [i, label])]);
  document.querySelector(`input[name=norm][value=${one.norm}]`).checked = true;
  setReach();
  clearResult();
  say("Pick an image and attack it.");
  page.start = 0;
  await showImages();
}

// The slider begins at the defence's own eps, and goes from a twentieth of it to five times it, as
// far as the server goes along.
function setReach() {
  const norm = picked("norm");
  const value = norm === page.defence.norm ? page.defence.eps : USUAL[norm];
  const [least, most] = page.reach[norm];
  const step = value / 20;
  Object.assign(at("eps"), { min: step * Math.ceil(least / step), max: Math.min(most, 5 * value), step, value });
  showNumbers();
}

function showNumbers() {
  const eps = +at("eps").value;
  at("eps-shown").textContent = eps.toFixed(3) + (picked("norm") === "Linf" ? ` (${(255 * eps).toFixed(1)}/255)` : "");
  at("steps-shown").textContent = at("steps").value;
}

async function showImages() {
  const found = await asked(`/api/images?defence=${encodeURIComponent(at("defence").value)}&start=${page.start}`);
  at("thumbnails").replaceChildren(...found.map((one, i) => made("label", { title: one.label },
    made("input", { type: "radio", name: "image", value: one.number, checked: i === 0, ariaLabel: `${one.label}, number ${one.number}` }),
    made("img", { src: picture(one.picture), alt: "" }))));
  const count = page.defence.images;
  at("which").textContent = count ? `${page.start + 1} to ${page.start + found.length} of ${count}` : "no test images here";
  at("earlier").disabled = page.start === 0;
  at("later").disabled = page.start + found.length >= count;
}

function pickSource() {
  const source = picked("source");
  for (const part of document.querySelectorAll("[data-source]")) part.hidden = part.dataset.source !== source;
  at("label-field").hidden = source === "test";
}

async function readUpload() {
  const file = at("file").files[0];
  page.upload = page.refused = "";
  if (!file) return;
  if (!file.size) page.refused = "the file is empty: PNG or JPEG would do";
  if (file.size > 1_400_000) page.refused = "the picture is larger than 1.4 MB: a smaller file would do";
  if (page.refused) throw new Error(page.refused);
  const text = await new Promise((done, failed) => {
    const reader = Object.assign(new FileReader(), { onload: () => done(reader.result), onerror: () => failed(new Error("the file cannot be read")) });
    reader.readAsDataURL(file);
  });
  page.upload = text.split(",")[1] ?? "";
}

function question() {
  const source = picked("source");
  const found = {
    defence: at("defence").value, aim: picked("aim"), norm: picked("norm"),
    eps: +at("eps").value, steps: +at("steps").value,
  };
  if (page.tab === "compare") {
    if (!at("against").value) throw new Error("no other defence here takes images of this size");
    found.against = at("against").value;
  }
  if (source === "test") {
    if (!picked("image")) throw new Error("there is no test image to pick: upload or draw one");
    return { ...found, image: +picked("image") };
  }
  if (at("label").value !== "") found.label = +at("label").value;
  if (source === "draw") return { ...found, drawing: drawing.base64 };
  if (!page.upload) throw new Error(page.refused || "pick an image file first");
  return { ...found, picture: page.upload };
}

// Showing

async function attack() {
  const turn = ++page.turn;
  at("result").ariaBusy = "true";
  at("go").ariaDisabled = "true";
  try {
    const found = await asked("/api/attack", question());
    if (turn === page.turn) show(found);
  } finally {
    if (turn === page.turn) at("result").ariaBusy = at("go").ariaDisabled = "false";
  }
}

function show(found) {
  say(found.verdict);
  at("took").textContent = `answered in ${found.seconds.toFixed(2)} s`;
  const truth = found.truth;
  const bold = (words) => made("b", {}, words);
  at("pictures").replaceChildren(
    figure(found.pictures.clean, [bold("Clean"), made("br"), found.known ? truth : `seen as ${truth}`], "The clean image"),
    figure(found.pictures.attacked, [bold("Attacked"), made("br"), `moved by ${found.distance.toFixed(3)}`], "The attacked image"),
    figure(found.pictures.difference, [bold("Difference"), made("br"), found.pictures.magnified ? `${found.pictures.magnified.toFixed(1)} times as strong` : "none"], "What was added"),
  );
  const two = found.parties.length > 1;
  at("parties").replaceChildren(...found.parties.flatMap((party) => ["clean", "attacked"].map((state) => {
    const seen = party[state];
    const title = two ? `${party.name}, ${state}` : state[0].toUpperCase() + state.slice(1);
    return made("div", { className: "card" }, made("h2", {}, title), key(),
      bars(seen, party.classes, truth), made("h3", {}, `Candidates, ${seen.agreeing} of ${seen.samples} agree with the answer`),
      candidates(seen, truth));
  })));
  page.steps = found.steps;
  at("way").hidden = !found.steps.length;
  Object.assign(at("step"), { max: Math.max(0, found.steps.length - 1), value: found.steps.length - 1 });
  showStep();
}

function showStep() {
  const number = +at("step").value;
  const one = page.steps[number];
  if (!one) return;
  at("step-picture").src = picture(one.picture);
  at("step-picture").alt = `The image at step ${number + 1}`;
  const lead = one.margin < 0 ? `is behind by ${(-one.margin).toFixed(2)}` : `leads by ${one.margin.toFixed(2)}`;
  at("step-words").textContent = `Step ${number + 1} of ${page.steps.length}: the right class ${lead}; the classifier says ${one.classifier}, the defence ${one.defence}`;
  drawSteps(at("step-chart"), page.steps, number);
}

// Tabs

const TABS = ["attack", "compare", "record"];

function pickTab(name) {
  page.tab = name;
  for (const one of TABS) {
    at(`tab-${one}`).ariaSelected = String(one === name);
    at(`tab-${one}`).tabIndex = one === name ? 0 : -1;
  }
  at("work").hidden = name === "record";
  at("work").setAttribute("aria-labelledby", `tab-${name === "record" ? "attack" : name}`);
  at("records").hidden = name !== "record";
  for (const part of document.querySelectorAll(".only-compare")) part.hidden = name !== "compare";
  at("go").textContent = name === "compare" ? "Attack the first, show it to both" : "Attack";
  if (name === "record" && at("record").value && !at("page").src) showRecord();
}

function showRecord() {
  at("page").src = `/record?number=${at("record").value}`;
}

for (const name of TABS) at(`tab-${name}`).addEventListener("click", () => pickTab(name));
document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!move) return;
  const name = TABS[(TABS.indexOf(page.tab) + move + TABS.length) % TABS.length];
  pickTab(name);
  at(`tab-${name}`).focus();
});

// Wiring

at("form").addEventListener("submit", async (event) => {
  await attempt(attack)(event);
  if (matchMedia("(max-width: 60rem)").matches) at("verdict").scrollIntoView(); // it is below the form
});
at("defence").addEventListener("change", attempt(pickDefence));
at("source").addEventListener("change", pickSource);
at("norm").addEventListener("change", setReach);
for (const id of ["eps", "steps"]) at(id).addEventListener("input", showNumbers);
at("step").addEventListener("input", showStep);
at("file").addEventListener("change", attempt(readUpload));
at("clear").addEventListener("click", () => drawing.clear());
at("record").addEventListener("change", showRecord);
const turned = (by) => attempt(async () => { page.start = Math.max(0, page.start + by); await showImages(); });
at("earlier").addEventListener("click", turned(-12));
at("later").addEventListener("click", turned(12));

await attempt(async () => {
  const found = await asked("/api/offered");
  page.shapes = found.defences;
  page.reach = found.reach;
  fill("defence", Object.keys(found.defences).map((name) => [name, name]));
  fill("record", found.records.map((title, i) => [i, title]));
  at("no-record").hidden = found.records.length > 0;
  at("page").hidden = found.records.length === 0;
  pickTab("attack");
  pickSource();
  await pickDefence();
  document.body.dataset.ready = "yes";
})();
