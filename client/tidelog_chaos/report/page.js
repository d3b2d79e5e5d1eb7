(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const chart = document.getElementById("chart");
  const svg = document.getElementById("timeline");
  const cursor = document.getElementById("cursor");
  const tip = document.getElementById("tip");
  const said = document.getElementById("said");
  const left = +svg.dataset.left, plot = +svg.dataset.plot, end = +svg.dataset.end, width = +svg.dataset.width;
  let place = -1;

  const number = (value) => value.toLocaleString("en-US");
  const time = (seconds) => {
    const whole = Math.floor(seconds), hours = Math.floor(whole / 3600);
    const minutes = Math.floor((whole % 3600) / 60), rest = String(whole % 60).padStart(2, "0");
    return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
  };
  const during = (spans, from, to) => spans.filter(([start, stop]) => start < to && stop >= from);
  const several = (names, most) => (names.length > most ? [...names.slice(0, most), `and ${names.length - most} more`] : names);

  const lines = (index) => {
    const [ok, unknown, failed, read, p50, p99, max] = data.steps[index];
    const from = index * data.step, to = from + data.step;
    const found = [`${time(from)}${data.step > 1 ? ` to ${time(to)}` : ""}`];
    found.push(`${number(ok)} acknowledged, ${number(unknown)} unknown, ${number(failed)} failed`);
    found.push(`${number(read)} read`);
    found.push(p50 === null ? "no latency: nothing was acknowledged" : `latency p50 ${p50} ms, p99 ${p99} ms, max ${max} ms`);
    const faults = during(data.faults, from, to).map((fault) => fault[2]);
    found.push(...several(faults, 5).map((fault) => `\u2022 ${fault}`));
    const down = [...new Set(during(data.windows, from, to).map((window) => window[2]))];
    if (down.length) found.push(`unavailable: ${several(down, 4).join(", ")}`);
    const controllers = [...new Set(during(data.controller, from, to).map((reign) => reign[2] ?? "none"))];
    if (controllers.length) found.push(`controller: ${controllers.join(", then ")}`);
    return found;
  };

  const show = (index, aloud) => {
    place = Math.max(0, Math.min(data.steps.length - 1, index));
    const x = left + (plot * Math.min((place + 0.5) * data.step, end)) / end;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.setAttribute("visibility", "visible");
    const text = lines(place);
    tip.textContent = text.join("\n");
    tip.hidden = false;
    const box = svg.getBoundingClientRect(), around = chart.getBoundingClientRect();
    const at = box.left - around.left + (x / width) * box.width;
    const fits = at + 16 + tip.offsetWidth < around.width;
    tip.style.left = `${Math.max(4, fits ? at + 16 : at - 16 - tip.offsetWidth)}px`;
    if (aloud) said.textContent = text.join(". ");
  };
  const hide = () => {
    tip.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  };

  chart.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const seconds = ((((event.clientX - box.left) / box.width) * width - left) / plot) * end;
    if (seconds < 0 || seconds > end) hide();
    else show(Math.floor(seconds / data.step), false);
  });
  chart.addEventListener("pointerleave", hide);
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: place - 1, ArrowRight: place + 1, PageUp: place - 10, PageDown: place + 10, Home: 0, End: data.steps.length - 1 };
    if (event.key === "Escape") hide();
    else if (event.key in moves) {
      event.preventDefault();
      show(moves[event.key], true);
    }
  });
})();
