/* SPDX-License-Identifier: MIT */
/* Functions that the pages have in common: elements for text and tables, formats of numbers, and charts. The contents of
 * records are inserted as text, never as markup. */
'use strict';

const finite = x => typeof x === 'number' && Number.isFinite(x);
const capital = text => text[0].toUpperCase() + text.slice(1);

/* ---- text ------------------------------------------------------------------------------------------------- */

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children.filter(c => c !== null && c !== undefined));
  return node;
}

function number(x, digits = 0) {
  return finite(x) ? x.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })
    : '–';
}

/* Formats a figure with four decimals. A small one has three significant digits instead, and a large one no decimals. */
function figure(x) {
  const size = Math.abs(x);
  return !finite(x) || !x || (size >= 1e-3 && size < 1e5) ? number(x, 4) : size < 1 ? String(Number(x.toPrecision(3)))
    : size < 1e15 ? number(x) : exponent(x);
}

/* Formats a number such as 2.5e-5. */
const exponent = x => x.toExponential(2).replace(/\.?0*e\+?/, 'e');

/* Formats a number with about four digits for an axis or a table, such as 1.25 M, 250 k, 0.0012 or 2e-5, because there is
 * no room for six digits beside an axis. All numbers of an axis have the unit of `largest`. */
function brief(x, digits, largest = x) {
  const size = Math.abs(largest);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) return Math.abs(x) < 1e-9 * size ? '0' : exponent(x);
  for (const [unit, factor, from] of [['G', 1e9, 1e9], ['M', 1e6, 1e6], ['k', 1e3, 1e5]])
    if (size >= from && x) return number(x / factor, 2).replace(/\.?0+$/, '') + ' ' + unit;
  return number(x, digits);
}

function duration(seconds) {
  if (!finite(seconds)) return '–';
  const s = Math.max(0, Math.round(seconds));
  if (seconds > 0 && seconds < 1e-3) return number(1e6 * seconds) + ' µs';
  if (seconds < 0.1) return number(1e3 * seconds) + ' ms';
  if (seconds < 10) return number(seconds, 1) + ' s';
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + s % 60 + ' s';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
  return Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
}

const bytes = n => n < 1e3 ? number(n) + ' bytes' : n < 1e6 ? number(n / 1e3, 1) + ' kB' : number(n / 1e6, 1) + ' MB';

const when = time => time ? time.replace('T', ' ').replace('Z', ' UTC') : '';

function table(head, rows) {
  return el('div', { class: 'scroll', tabindex: 0 }, el('table', {},
    el('thead', {}, el('tr', {}, ...head.map(h => el('th', { scope: 'col' }, h)))),
    el('tbody', {}, ...rows.map(r => el('tr', {}, ...r.map((c, i) => i ? el('td', {}, c) : el('th', { scope: 'row' }, c)))))));
}

/* Returns an element with the label and the SHA-256 of weights, and a button that copies the SHA-256. */
function hash_line(label, hash) {
  const code = el('code', {}, hash), button = el('button', { type: 'button' }, 'copy');
  button.addEventListener('click', () => { /* the text is selected, so it can also be copied by hand */
    getSelection().selectAllChildren(code);
    button.textContent = document.execCommand('copy') ? 'copied' : 'selected';
  });
  return el('span', { class: 'hash' }, label + ' ', code, ' ', button);
}

/* The projector mode has larger type. It is on as long as the page's address ends with #big, so that it survives a
 * reload. */
const BIG = '#big', big_link = el('a', { class: 'big' });

function show_size() {
  const big = location.hash === BIG;
  document.documentElement.classList.toggle('large', big);
  big_link.setAttribute('href', big ? '#' : BIG);
  big_link.textContent = big ? 'normal type' : 'larger type';
}

addEventListener('hashchange', show_size);
addEventListener('keydown', e => {
  if (e.key === 'p' && !e.ctrlKey && !e.altKey && !e.metaKey) big_link.click();
});
show_size();

/* Returns the number of pixels in a unit of a chart: 1, or more with larger type. */
function unit() {
  const style = getComputedStyle(document.documentElement);
  return parseFloat(style.fontSize) / 16 * parseFloat(style.getPropertyValue('--chart'));
}

/* Returns whether a record says that a device or a host was lost. A run that repeats a step keeps all devices. */
const is_loss = r => r.type === 'fault' && r.action !== 'repeat';

/* Returns what happened to the run as {sign, text}: a sign for a curve, and a text. Returns undefined if the record is not
 * one of an event at a step. */
function event_of(r) {
  const step = number(r.step);
  return !finite(r.step) ? undefined : {
    fault: is_loss(r) ? { sign: '−', text: `${r.device} lost at step ${step}` } : { sign: '!', text: `step ${step} repeated` },
    arrival: { sign: '+', text: `${r.host} admitted after step ${step}` },
    failed_arrival: { sign: '×', text: `${r.host} not admitted after step ${step}` },
    nonfinite: { sign: '!', text: `step ${step} not applied` },
    resume: { sign: '↻', text: `resumed after step ${step}` },
  }[r.type];
}

/* Kinds of data that are the user's own files. */
const OWN_DATA = { csv: 'table', folder: 'folder of pictures', npy: 'arrays', safetensors: 'tensors' };

const part = (tag, name) => el(tag, { class: name });
const fold = (title, content, open) => el('details', open ? { open: '' } : {}, el('summary', {}, title), content);

/* ---- charts ----------------------------------------------------------------------------------------------- */

/* Sizes of a chart in units of its viewBox. A unit is as many pixels as unit() says. */
const LEFT = 56, RIGHT = 12, TOP = 12, BOTTOM = 36, HEIGHT = 250, PIXELS = 2, ARROWS = 24;

function shape(tag, attributes, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/* Returns 1, 2 or 5 times a power of ten, such that `range` contains about `count` of them. */
function tick_step(range, count, least = 0) {
  const rough = range > 0 && finite(range) ? range / count : 1, power = 10 ** Math.floor(Math.log10(rough));
  return Math.max(least, power * [1, 2, 5, 10].find(m => m * power >= rough * 0.999));
}

/* Returns the next smaller step of an axis. All its multiples can be written with the decimals of the old step, or with
 * one more if it is a power of ten. */
function finer(step) {
  const power = 10 ** Math.floor(Math.log10(step) + 1e-9), times = Math.round(step / power);
  return times === 5 ? (power >= 10 ? step / 2 : 2 * power) : times === 2 ? power : power / 2;
}

const digits_of = step => Math.max(0, -Math.floor(Math.log10(step) + 1e-9));

/* Returns the index of the first of `points` (ascending in x) that is at or after x. */
function search(points, x) {
  let a = 0, b = points.length;
  while (a < b) {
    const m = (a + b) >> 1;
    if (points[m].x < x) a = m + 1; else b = m;
  }
  return a;
}

/* Returns the points from x = lo to hi, merged so that there are at most `columns` points. A point is {from, x, sum,
 * weight, lo, hi}: it stands for values between from and x, its value is sum / weight, and lo and hi are the smallest
 * and the largest of these values. A merged point stands for all values of the points that were merged. */
function decimate(points, lo, hi, columns) {
  const first = Math.max(0, search(points, lo) - 1), end = Math.min(points.length, search(points, hi) + 2);
  const each = Math.max(1, Math.ceil((end - first) / columns)), out = [];
  for (let i = first; i < end; i += each) {
    const p = { ...points[i] }, stop = Math.min(end, i + each);
    for (let k = i + 1; k < stop; k++) {
      const q = points[k];
      p.x = q.x;
      p.under = Math.min(p.under || 0, q.under || 0);
      p.sum += q.sum;
      p.weight += q.weight;
      if (!(p.lo <= q.lo)) p.lo = q.lo;
      if (!(p.hi >= q.hi)) p.hi = q.hi;
    }
    p.y = p.weight > 0 ? p.sum / p.weight : NaN;
    out.push(p);
  }
  return out;
}

/* Returns the largest value that a point of a curve stands for. */
const highest = p => Math.max(p.y, finite(p.hi) ? p.hi : p.y);

/* Returns a point of a curve whose points have no ranges. */
const point = (x, y) => ({ from: x, x, sum: y, weight: finite(y) ? 1 : 0, lo: y, hi: y, y });

/* Returns the smallest value for which this holds: the points whose values are not larger have at least `share` of the
 * total weight. */
function quantile(points, share) {
  const ranked = [...points].sort((p, q) => p.y - q.y);
  let left = share * ranked.reduce((sum, p) => sum + p.weight, 0);
  return ranked.find(p => (left -= p.weight) <= 0).y;
}

/* Marks the points of each curve that also belong to earlier curves: sets `under` to the number of these curves. */
function find_twins(curves) {
  curves.forEach((c, i) => {
    for (const a of curves.slice(0, i)) {
      let k = 0;
      for (const p of c.points) {
        while (k < a.points.length && a.points[k].x < p.x) k++;
        const q = a.points[k];
        if (q && q.x === p.x && q.y === p.y && q.from === p.from) p.under = (p.under || 0) + 1;
      }
    }
  });
}

/* A chart. Options:
 *   title, x_name    texts
 *   digits           0: values are whole numbers; otherwise as figure() formats them
 *   trim             values have at most four significant digits
 *   x_digits         number of decimals of x; 0: x is a whole number
 *   from_zero        the y axis begins at 0
 *   most             largest value of the y axis
 *   of_time          weights of points are seconds
 *   view             visible range {lo, hi} of x, shared by charts that zoom together; NaN: all points
 *   empty            text that is shown if there are no points
 *   near             the cursor also reads a curve whose nearest point is within a few pixels
 * A curve is {name, colour, points, line, dots}. Where a curve coincides with an earlier one, it is dashed, so that both
 * are visible. An event is {x, sign, text, colour}: a line across the chart with a sign at its top. */
class Chart {
  constructor(options) {
    Object.assign(this, options, { curves: [], events: [], cursor: null, drag: null });
    const button = (text, name, does) => {
      const b = el('button', { type: 'button', 'aria-label': `${name}: ${options.title}`, title: name }, text);
      b.addEventListener('click', does);
      return b;
    };
    this.out_button = button('−', 'zoom out', () => this.zoom(2));
    this.in_button = button('+', 'zoom in', () => this.zoom(0.5));
    this.all_button = button('reset', 'show everything', () => this.show(NaN, NaN));
    this.legend = el('div', { class: 'legend' });
    this.svg = shape('svg', { tabindex: 0, role: 'img', 'aria-describedby': 'hint' });
    this.tip = el('div', { class: 'tip', 'aria-live': 'polite' });
    this.none = el('p', { class: 'none' }, options.empty);
    this.figure = el('figure', {}, el('figcaption', {}, options.title, el('small', {}),
      el('span', { class: 'buttons' }, this.out_button, this.in_button, this.all_button)),
    this.legend, this.svg, this.tip, this.none);
    this.listen();
    (this.view.charts ||= []).push(this);
  }

  listen() {
    const at = e => (e.clientX - this.svg.getBoundingClientRect().left) / unit();
    this.svg.addEventListener('pointerdown', e => {
      if (e.button === 0 && e.pointerType !== 'touch') {
        this.drag = { from: at(e), to: at(e) };
        this.svg.setPointerCapture(e.pointerId);
      } else this.point_at(at(e));
    });
    this.svg.addEventListener('pointermove', e => {
      if (this.drag) this.drag.to = at(e);
      this.point_at(at(e));
    });
    this.svg.addEventListener('pointerup', () => {
      const d = this.drag;
      this.drag = null;
      if (d && Math.abs(d.to - d.from) > 6) this.show(...[this.value_at(d.from), this.value_at(d.to)].sort((a, b) => a - b));
      else this.draw();
    });
    this.svg.addEventListener('pointerleave', () => this.drag || this.leave());
    this.svg.addEventListener('blur', () => this.leave());
    this.svg.addEventListener('dblclick', () => this.show(NaN, NaN));
    this.svg.addEventListener('keydown', e => this.key(e));
  }

  key(e) {
    if (e.ctrlKey || e.altKey || e.metaKey || !this.columns) return;
    const move = by => this.choose(Math.max(0, Math.min(this.columns.length - 1,
      this.cursor === null ? (by > 0 ? 0 : this.columns.length - 1) : this.nearest(this.cursor) + by)));
    const does = { ArrowLeft: () => e.shiftKey ? this.pan(-0.25) : move(-1),
      ArrowRight: () => e.shiftKey ? this.pan(0.25) : move(1), Home: () => this.choose(0),
      End: () => this.choose(this.columns.length - 1), '+': () => this.zoom(0.5), '=': () => this.zoom(0.5),
      '-': () => this.zoom(2), 0: () => this.show(NaN, NaN), Escape: () => this.leave() }[e.key];
    if (!does) return;
    e.preventDefault();
    does();
  }

  /* whole() returns the range of all points, range() the visible range. */
  whole() {
    const x = this.curves.flatMap(c => c.points.length ? [c.points[0].from, c.points.at(-1).x] : []);
    return x.length ? [Math.min(...x), Math.max(...x)] : null;
  }

  range() {
    const all = this.whole(), v = this.view;
    return !all ? null : finite(v.lo) ? [Math.max(v.lo, all[0]), Math.min(v.hi, all[1])] : all;
  }

  show(lo, hi) {
    const all = this.whole();
    if (!all) return;
    if (finite(lo)) { /* the range is at least two points wide, and lies within that of all points */
      const width = Math.min(Math.max(hi - lo, Math.min(4 * 10 ** -(this.x_digits || 0), all[1] - all[0])), all[1] - all[0]);
      lo = Math.max(all[0], Math.min((lo + hi - width) / 2, all[1] - width));
      hi = lo + width;
      if (lo <= all[0] && hi >= all[1]) lo = hi = NaN;
    }
    Object.assign(this.view, { lo, hi });
    this.view.charts.forEach(c => c.draw());
  }

  zoom(factor) {
    const [lo, hi] = this.range() || [], about = finite(this.cursor) ? this.cursor : (lo + hi) / 2;
    if (finite(lo)) this.show(about - (about - lo) * factor, about + (hi - about) * factor);
  }

  pan(share) {
    const [lo, hi] = this.range() || [];
    this.show(lo + (hi - lo) * share, hi + (hi - lo) * share);
  }

  value_at(pixel) {
    const [lo, hi] = this.range();
    return lo + (pixel - LEFT) / (this.width - LEFT - RIGHT) * (hi - lo || 1);
  }

  nearest(x) {
    return this.columns.reduce((best, c, i) => Math.abs(c.x - x) < Math.abs(this.columns[best].x - x) ? i : best, 0);
  }

  point_at(pixel) {
    if (this.columns && this.columns.length) this.choose(this.nearest(this.value_at(pixel)));
  }

  choose(index) {
    this.cursor = this.columns[index].x;
    this.mark();
  }

  leave() {
    this.cursor = null;
    this.mark();
  }

  name(title, unit = '') {
    this.title = this.figure.firstChild.firstChild.data = title;
    this.figure.firstChild.children[0].textContent = unit;
  }

  set(curves, events) {
    find_twins(curves);
    this.curves = curves;
    this.events = events || [];
    this.draw();
  }

  /* Returns the range and the step of the y axis. The top of the axis is above all means and ranges. With the option
   * of_time, the top is only above the values of 98 % of the time of each curve: if two steps are reported together, the second step
   * seems to have taken no time, and its rate is far too high. */
  scale(drawn) {
    const points = drawn.flatMap(c => c.drawn).filter(p => finite(p.y));
    let lo = Math.min(...points.map(p => p.y));
    const curves = drawn.map(c => c.drawn.filter(p => finite(p.y))).filter(list => list.length);
    let hi = this.of_time ? Math.max(...curves.map(list => quantile(list, 0.98))) : Math.max(...points.map(highest));
    if (this.from_zero && lo > 0) lo = 0;
    const step = tick_step(hi - lo || Math.abs(hi) || 1, 5);
    lo = Math.floor(lo / step + 1e-9) * step;
    hi = Math.ceil(hi / step - 1e-9) * step;
    if (hi <= lo) hi = lo + step;
    return { lo, hi: Math.min(hi, this.most ?? Infinity) > lo ? Math.min(hi, this.most ?? Infinity) : hi, step };
  }

  draw() {
    const range = this.range();
    this.width = this.svg.clientWidth / unit() || this.width || 560;
    const columns = Math.floor((this.width - LEFT - RIGHT) / PIXELS);
    const drawn = range ? this.curves.map(c => ({ ...c, drawn: decimate(c.points, ...range, columns) })) : [];
    const empty = !drawn.some(c => c.drawn.some(p => finite(p.y)));
    this.svg.style.display = this.legend.style.display = empty ? 'none' : '';
    this.none.style.display = empty ? '' : 'none';
    this.out_button.disabled = this.all_button.disabled = empty || !finite(this.view.lo);
    this.in_button.disabled = empty;
    this.columns = null;
    if (empty) return;
    const y = this.scale(drawn), [x0, x1] = range, span = x1 - x0 || 1, bottom = HEIGHT - BOTTOM;
    this.drawn = drawn;
    /* The cursor stops at the points of the curve that reaches farthest within the view, and if several do, at those
     * of the one with the most points. */
    const end = c => c.drawn.length ? Math.min(c.drawn.at(-1).x, x1) : -Infinity;
    const leads = (c, a) => end(c) > end(a) || (end(c) === end(a) && c.drawn.length > a.drawn.length);
    this.columns = drawn.reduce((a, c) => leads(c, a) ? c : a).drawn.filter(p => p.x >= x0 && p.x <= x1);
    this.X = x => LEFT + (x1 > x0 ? (x - x0) / span : 0.5) * (this.width - LEFT - RIGHT);
    this.Y = v => bottom - (v - y.lo) / (y.hi - y.lo) * (bottom - TOP);
    this.svg.setAttribute('viewBox', `0 0 ${this.width} ${HEIGHT}`);
    this.svg.setAttribute('aria-label', `${this.title}, ${this.x_name} ${number(x0)} to ${number(x1)}; `
      + this.curves.filter(c => c.points.length).map(c => `${c.name}: last ${this.text_of(c.points.at(-1).y)}`).join('; '));
    this.svg.replaceChildren(...this.axes(y, x0, x1, bottom), this.plot(drawn, y, bottom), ...this.signs(x0, x1, bottom),
      ...this.arrows(drawn, y, range), this.over = shape('g', {}));
    this.legend.replaceChildren(...drawn.filter(c => c.points.length).map(c => this.key_of(c, y)));
    this.mark();
  }

  /* Formats a value for the legend and the cursor. */
  text_of(y) {
    return this.trim && finite(y) ? String(Number(y.toPrecision(4))) : this.digits === 0 ? number(y) : figure(y);
  }

  key_of(c, y) {
    const end = c.points.at(-1), name = c.drawn.some(p => p.hi > p.lo) && c.ranged ? c.ranged : c.name;
    const most = Math.max(...c.drawn.filter(p => finite(p.y)).map(highest));
    return el('span', { class: c.colour }, el('i', { class: c.line ? '' : 'dot' }), name + ' ',
      c.no_last ? null : el('b', {}, this.text_of(end.y)),
      this.is_beyond(most, y) ? ` ▲ up to ${brief(most, this.digits)}` : null);
  }

  /* Returns whether a value is above the frame of the y axis. A mean of equal values can be rounded up. */
  is_beyond(value, y) {
    return value > y.hi + 1e-6 * (y.hi - y.lo);
  }

  /* Returns arrows at the upper edge, above values that are beyond the frame: one for each excursion of a curve. */
  arrows(drawn, y, [x0, x1]) {
    const list = [];
    for (const c of drawn) {
      let from = null;
      for (const p of c.drawn.filter(q => this.is_beyond(highest(q), y) && q.x >= x0 && q.x <= x1)) {
        const x = this.X(p.x);
        if (from !== null && x - from < ARROWS) continue;
        from = x;
        const arrow = shape('path', { class: 'beyond ' + c.colour, d: `M${x - 5} ${TOP - 3}h10l-5 -8Z` });
        arrow.append(shape('title', {}, `${c.name}: ${this.text_of(highest(p))}, beyond the frame`));
        list.push(arrow);
      }
    }
    return list;
  }

  /* Returns the lines of events. A sign that would cover the one before it is left out. */
  signs(x0, x1, bottom) {
    const list = [];
    let end = -Infinity;
    for (const e of this.events.filter(v => v.x >= x0 && v.x <= x1).sort((a, b) => a.x - b.x)) {
      const x = this.X(e.x), g = shape('g', { class: 'event ' + (e.colour || '') });
      g.append(shape('title', {}, e.text), shape('path', { d: `M${x} ${TOP}V${bottom}` }));
      if (x - end > 15) {
        g.append(shape('circle', { cx: x, cy: TOP + 7, r: 7 }), shape('text', { x, y: TOP + 11, 'text-anchor': 'middle' }, e.sign));
        end = x;
      }
      list.push(g);
    }
    return list;
  }

  axes(y, x0, x1, bottom) {
    const list = [], digits = digits_of(y.step);
    const least = this.x_digits ? 10 ** -this.x_digits : 1, ticks = by => Math.floor(x1 / by) - Math.ceil(x0 / by) + 1;
    let step = tick_step(x1 - x0, this.width < 460 ? 4 : 7, least);
    if (ticks(step) < 3) step = Math.max(least, finer(step));
    for (let v = y.lo; v <= y.hi + y.step / 2; v += y.step)
      list.push(shape('path', { class: 'grid', d: `M${LEFT} ${this.Y(v)}H${this.width - RIGHT}` }),
        shape('text', { x: LEFT - 8, y: this.Y(v) + 4, 'text-anchor': 'end' }, brief(v, digits, Math.max(-y.lo, y.hi))));
    list.push(shape('path', { class: 'axis', d: `M${LEFT} ${bottom}H${this.width - RIGHT}` }));
    for (let v = Math.ceil(x0 / step) * step; v <= x1; v += step)
      list.push(shape('path', { class: 'axis', d: `M${this.X(v)} ${bottom}v4` }),
        shape('text', { x: this.X(v), y: bottom + 17, 'text-anchor': this.X(v) > this.width - 30 ? 'end' : 'middle' }, brief(v, digits_of(step), x1)));
    list.push(shape('text', { x: LEFT + (this.width - LEFT - RIGHT) / 2, y: bottom + 32, 'text-anchor': 'middle' }, this.x_name));
    return list;
  }

  /* Draws ranges, curves and dots, clipped to the frame. */
  plot(drawn, y, bottom) {
    const id = 'cut-' + this.title.replace(/\W/g, ''), cut = shape('clipPath', { id });
    cut.append(shape('rect', { x: LEFT - 6, y: TOP - 6, width: this.width - LEFT - RIGHT + 12, height: bottom - TOP + 12 }));
    const group = shape('g', { 'clip-path': `url(#${id})` });
    group.append(cut);
    const XY = (p, v) => this.X(p.x).toFixed(1) + ' ' + this.Y(Math.max(y.lo, Math.min(v, y.hi + y.hi - y.lo))).toFixed(1);
    for (const c of drawn) {
      const there = c.drawn.filter(p => finite(p.y)), g = shape('g', { class: c.colour });
      if (c.line && there.some(p => p.hi > p.lo))
        g.append(shape('path', { class: 'band', d: 'M' + there.map(p => XY(p, p.hi)).join('L') + 'L'
          + [...there].reverse().map(p => XY(p, p.lo)).join('L') + 'Z' }));
      if (c.line) for (const [under, d] of this.pieces(c.drawn, XY)) {
        const piece = shape('path', { class: under ? 'curve twin' : 'curve', d }), dash = 16 >> Math.min(under, 3);
        if (under) piece.style.strokeDasharray = `${dash} ${16 - dash}`;
        g.append(piece);
      }
      if ((c.dots && there.length <= 60) || there.length === 1)
        for (const p of there) g.append(shape('circle', { class: 'dots', cx: this.X(p.x), cy: this.Y(p.y), r: p.under ? 2.5 : 4 }));
      group.append(g);
    }
    return group;
  }

  /* Returns the paths of a curve, each as [number of earlier curves that it coincides with, path]. A missing point leaves
   * a gap. */
  pieces(points, XY) {
    const paths = new Map();
    let last = null, drawing = -1;
    for (const p of points) {
      if (!finite(p.y)) { last = null; drawing = -1; continue; }
      if (last) {
        const under = Math.min(last.under || 0, p.under || 0);
        paths.set(under, (paths.get(under) || '') + (under === drawing ? '' : 'M' + XY(last, last.y)) + 'L' + XY(p, p.y));
        drawing = under;
      }
      last = p;
    }
    return paths;
  }

  /* Returns the point of a curve that belongs to the point p of another curve: a point between p.from and p.x, or, if
   * the option `near` is set and there is none, the nearest point if it is within a few pixels. */
  at(points, p) {
    const inside = points.find(q => q.x >= p.from && q.x <= p.x);
    if (inside || !this.near || !points.length) return inside;
    const i = search(points, p.x), near = [points[i - 1], points[i]].filter(Boolean);
    const q = near.reduce((a, b) => Math.abs(b.x - p.x) < Math.abs(a.x - p.x) ? b : a);
    return Math.abs(this.X(q.x) - this.X(p.x)) <= 4 ? q : undefined;
  }

  /* Draws a mark at the point under the cursor, or the range that the user is selecting. */
  mark() {
    if (!this.columns) return;
    const bottom = HEIGHT - BOTTOM, marks = [];
    if (this.drag)
      marks.push(shape('rect', { class: 'chosen', x: Math.min(this.drag.from, this.drag.to), y: TOP,
        width: Math.abs(this.drag.to - this.drag.from), height: bottom - TOP }));
    const p = this.cursor === null || !this.columns.length ? null : this.columns[this.nearest(this.cursor)];
    const lines = p ? this.drawn.map(c => [c, this.at(c.drawn, p)]).filter(([, q]) => q && finite(q.y)) : [];
    if (p) marks.push(shape('path', { class: 'cross', d: `M${this.X(p.x)} ${TOP}V${bottom}` }));
    for (const [c, q] of lines)
      marks.push(shape('circle', { class: 'dots ' + c.colour, cx: this.X(q.x), cy: Math.max(TOP, this.Y(q.y)), r: 4.5 }));
    this.over.replaceChildren(...marks);
    if (!p) return this.tip.replaceChildren();
    const range = q => q.hi > q.lo ? ` (${this.text_of(q.lo)} to ${this.text_of(q.hi)})` : '';
    const x_text = x => number(x, this.x_digits || 0);
    this.tip.replaceChildren(`${this.x_name} ${x_text(p.from)}` + (x_text(p.from) !== x_text(p.x) ? ` to ${x_text(p.x)}` : ''),
      ...lines.map(([c, q]) => el('div', { class: c.colour }, el('i', {}),
        `${c.name}: ${this.text_of(q.y)}${range(q)}`)));
    const x = this.X(p.x), right = x < this.width / 2;
    this.tip.style.left = right ? (x + 28) * unit() + 'px' : '';
    this.tip.style.right = right ? '' : (this.width - x + 28) * unit() + 'px';
    this.tip.style.top = this.svg.getBoundingClientRect().top - this.figure.getBoundingClientRect().top + TOP * unit() + 'px';
  }
}

/* Returns the help text for mouse and keys. */
function hint() {
  return ['Drag across a curve, or press +, to look closer; double-click, or press reset, to see everything. With keys, on a curve: ',
    ...[['←', ''], ['→', ' read values, '], ['+', ''], ['−', ' look closer or less close, '], ['shift ←', ''], ['shift →', ' move, '],
      ['0', ' everything; '], ['p', ' larger type, for a projector.']].flatMap(([k, t]) => [el('kbd', {}, k), t || ' '])];
}
