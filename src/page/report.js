/* Draws a run from its records: those in this page or, while the run is in progress, those that the server sends
 * from /records. Contents of records are inserted as text, never as markup. */
'use strict';

/* ---- records ---------------------------------------------------------------------------------------------- */

/* The lines that src/page/page.h describes. `steps`: step records, each for one or more steps; `others`: all other
 * records, in order. */
const run = { id: 0, width: 1, steps: [], others: [], times: null, newest: null, cut: 0 };

function take(text) {
  for (const line of text.split('\n')) {
    if (!line.trim()) continue;
    const r = JSON.parse(line);
    if (r.type === 'page') {
      if (r.run !== run.id) Object.assign(run, { times: null, newest: null });
      Object.assign(run, { id: r.run, width: r.width, cut: r.cut_line });
      run.steps.length = r.steps_from;
      run.others.length = r.others_from;
    } else if (r.type === 'step') run.steps.push(r);
    else if (r.type === 'times') run.times = r;
    else if (r.type === 'newest') run.newest = r.step;
    else run.others.push(r);
  }
}

const last = type => run.others.findLast(r => r.type === type);
const finite = x => typeof x === 'number' && Number.isFinite(x);

/* The metrics of evaluations; the first one that the evaluations have is the run's metric. */
const METRICS = [{ key: 'test_accuracy', name: 'accuracy', trained: 'train_accuracy' }, { key: 'test_r2', name: 'R²' },
  { key: 'test_auc', name: 'AUC' }];
const OTHERS = [['test_top5', 'top 5'], ['test_r2', 'R²'], ['test_mae', 'mean absolute error'], ['test_auc', 'AUC']];

/* Whether a fault or a step that was left out says what this warning says. */
const told = warning => run.others.some(r => r.type === 'fault' ? warning.text.includes(r.error)
  : r.type === 'nonfinite' && warning.text.startsWith(`step ${r.step}: the loss of `));

/* Returns a summary of all records. */
function summary() {
  const begun = last('run_start') || {}, resumed = last('resume'), ended = last('run_end');
  const end = ended && run.others.indexOf(ended) > run.others.indexOf(resumed) ? ended : null;
  const start = { ...begun, ...resumed, time: begun.time, type: 'run_start' };
  const config = begun.config || {}, epochs = new Map();
  for (const r of run.others) {
    if (r.type !== 'epoch' && r.type !== 'eval') continue;
    const e = epochs.get(r.epoch) || { epoch: r.epoch };
    epochs.set(r.epoch, Object.assign(e, r.type === 'epoch' ? r : { ...r, seconds: e.seconds, eval_s: r.seconds },
      { at: e.at ?? r.at }));
  }
  const s = { start, end, config, epochs: [...epochs.values()], events: run.others.filter(
    r => ['fault', 'nonfinite', 'resume'].includes(r.type) || (r.type === 'warning' && !told(r))) };
  s.live = last('live') || {};
  s.data = start.data || {};
  s.judged = config.data && config.data.validation > 0 ? 'validation' : 'test';
  s.rows = s.data.images === false ? 'rows' : 'images'; /* older records lack it */
  s.synthetic = Boolean(s.data.synthetic || (end && end.synthetic));
  s.name = config.name || 'run';
  const values = s.data.targets && config.loss !== 'bce'; /* no accuracy, even without evaluations */
  s.metric = METRICS.find(m => s.epochs.some(e => finite(e[m.key]))) || METRICS[values ? 1 : 0];
  s.tested = s.epochs.filter(e => finite(e[s.metric.key]));
  s.step = run.steps.length ? run.steps.at(-1).step : end ? end.steps : 0;
  return Object.assign(s, progress(s));
}

/* Returns the progress of the run and an estimate of the remaining time: the missing steps, at the pace of the newest
 * tenth of the steps, and the missing evaluations. */
function progress(s) {
  const total_epochs = s.start.epochs ?? s.config.epochs, whole = s.epochs.findLast(e => finite(e.seconds));
  const per_epoch = whole && whole.at ? whole.at / whole.epoch
    : Math.ceil(s.data.train_rows / s.start.batch_size);
  const total = Math.round(per_epoch * total_epochs), recent = run.steps.slice(-Math.ceil(run.steps.length / 10));
  const sum = (list, of) => list.reduce((a, r) => a + of(r), 0);
  const seconds = r => r.images_per_s > 0 ? r.rows / r.images_per_s : 0;
  const pace = sum(recent, seconds) / sum(recent, r => r.steps || 1);
  const evaluations = s.epochs.filter(e => finite(e.eval_s));
  const evaluation = evaluations.length ? sum(evaluations, e => e.eval_s) / evaluations.length : 0;
  const left = (total - s.step) * pace + evaluation * Math.max(0, total_epochs - evaluations.length);
  const spent = s.end && s.start.time && !s.events.some(r => r.type === 'resume')
    ? (Date.parse(s.end.time) - Date.parse(s.start.time)) / 1000
    : sum(run.steps, seconds) + sum(evaluations, e => e.eval_s);
  return { total_epochs, total, left, spent, share: total > 0 ? Math.min(1, s.step / total) : NaN };
}

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

/* Formats a number with about four digits for an axis or a table: 1.25 M, 250 k, 0.0012. Six digits do not fit beside
 * an axis. */
function brief(x, digits) {
  for (const [unit, factor, from] of [['G', 1e9, 1e9], ['M', 1e6, 1e6], ['k', 1e3, 1e5]])
    if (Math.abs(x) >= from) return number(x / factor, 2).replace(/\.?0+$/, '') + ' ' + unit;
  return number(x, digits);
}

function duration(seconds) {
  if (!finite(seconds)) return '–';
  const s = Math.max(0, Math.round(seconds));
  if (seconds < 10) return number(seconds, 1) + ' s';
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + s % 60 + ' s';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
  return Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
}

const when = time => time ? time.replace('T', ' ').replace('Z', ' UTC') : '';

/* ---- above the curves -------------------------------------------------------------------------------------- */

/* Returns CSS class and name of the run's state. */
function state(s) {
  if (s.end) return [s.end.status, s.end.status];
  if (!live) return ['unknown', 'not ended'];
  if (live.gone) return ['unknown', 'no answer'];
  return ['running', s.start.devices ? 'running' : 'starting'];
}

function heading(s) {
  const [kind, name] = state(s), facts = [];
  if (s.start.time) facts.push('started ' + when(s.start.time));
  if (s.live.host) facts.push('on ' + s.live.host);
  if (s.live.run_dir) facts.push('in ' + s.live.run_dir);
  if (s.start.lockstep) facts.push('Lockstep ' + s.start.lockstep);
  document.title = (kind === 'running' && finite(s.share) ? Math.floor(100 * s.share) + ' % · ' : '') + s.name
    + (s.synthetic ? ' (SYNTHETIC data)' : '') + ': Lockstep run';
  return [el('div', { class: 'head' }, el('h1', {}, s.name), el('span', { class: 'state ' + kind }, name)),
    el('p', { class: 'sub' }, facts.join(' · ') || 'Data and devices are being opened; the figures follow.')];
}

function note(title, text, kind = '') {
  return el('p', { class: 'note ' + kind, role: 'note' }, el('strong', {}, title), ' ' + text);
}

/* Describes an event that the curves do not show: a lost worker, a step that was left out, a resumed run. */
function event_note(r) {
  if (r.type === 'resume')
    return note(`Resumed after step ${number(r.step)}.`, 'What came before was done in an earlier process.');
  if (r.type === 'warning') return note('Warning:', r.text);
  if (r.type === 'nonfinite')
    return note(`Step ${number(r.step)} was not applied.`,
      `The loss of shard ${r.shard}, on worker ${r.worker}, was not finite.`);
  return note(`Step ${number(r.step)}: ${r.worker < 0 ? 'host' : `worker ${r.worker},`} ${r.device}${r.worker < 0 ? '' : ','} failed.`,
    `${r.error} (${r.action}; devices left: ${r.devices_left})`);
}

const EVENTS_SHOWN = 16;

function notes(s) {
  const status = s.end ? s.end.status : '', list = [];
  if (live && live.gone && s.end)
    list.push(note('Ended.', 'The run has ended, and its server with it.'
      + (s.live.run_dir ? ` \`trainer report ${s.live.run_dir}\` writes this page to a file.` : '')));
  else if (live && live.gone)
    list.push(note('No answer.', `What is shown is from ${live.since}; this page goes on asking.`));
  if (s.synthetic)
    list.push(note('SYNTHETIC DATA.',
      'The images were made up by the program: these results say nothing of real data.', 'loud'));
  if (s.data.payload === 'differs')
    list.push(note('Other data.',
      'The files are not the published ones of this name: results do not compare.', 'loud'));
  if (status === 'failed') list.push(note('The run failed:', s.end.error || 'no reason was given', 'loud'));
  if (status === 'interrupted')
    list.push(note('Interrupted.', 'The run was stopped before its last epoch was over.'));
  if (!s.end && !live) list.push(note('No end.', 'The run was still going when this was written, or it was killed.'));
  if (s.end && s.end.stopped_early) list.push(note('Stopped early.', s.end.stopped_early + '.'));
  if (run.cut)
    list.push(note('Cut off.',
      `The last record, line ${run.cut} of metrics.jsonl, is incomplete and was left out.`));
  list.push(...s.events.slice(0, EVENTS_SHOWN).map(event_note));
  if (s.events.length > EVENTS_SHOWN) list.push(note('And more.', 'metrics.jsonl has all faults and resumes.'));
  return list;
}

/* Returns a name that may be broken after its underscores. */
const breakable = text => String(text).split(/(?<=_)/).flatMap((t, i) => i ? [el('wbr'), t] : [t]);

function tile(name, value, unit, ...details) {
  return el('dl', { class: 'tile' }, el('dt', {}, name),
    el('dd', /[a-z]/i.test(value) ? { class: 'name' } : {}, ...breakable(value), unit ? el('small', {}, ' ' + unit) : null),
    ...details.filter(Boolean).map(d => typeof d === 'string' ? el('dd', { class: 'detail' }, d) : d));
}

function metric_tile(s) {
  const newest = s.tested.at(-1), { key, name, trained } = s.metric;
  const epoch = trained && s.epochs.findLast(e => finite(e[trained]));
  if (!newest)
    return tile('Test ' + name, '–', '', 'no evaluation yet');
  const best = s.tested.reduce((a, e) => e[key] > a[key] ? e : a); /* the first of equal values, as in training */
  const others = OTHERS.filter(([k]) => k !== key && finite(newest[k])).map(([k, n]) => `${n} ${number(newest[k], 4)}`);
  return tile('Test ' + name, number(newest[key], 4), '',
    [`after epoch ${newest.epoch}, loss ${number(newest.test_loss, 4)}`, ...others].join(', ')
      + (best === newest ? '' : `; best ${number(best[key], 4)} after epoch ${best.epoch}`),
    epoch && `training: ${number(epoch[trained], 4)}, the mean over epoch ${epoch.epoch} as it was trained`);
}

function progress_tile(s) {
  const percent = finite(s.share) ? Math.floor(100 * s.share) : 0, [kind] = state(s);
  const bar = el('dd', { class: 'bar ' + kind, role: 'progressbar', 'aria-label': 'steps done', 'aria-valuemin': 0,
    'aria-valuemax': 100, 'aria-valuenow': percent }, el('i', {}));
  bar.firstChild.style.width = (finite(s.share) ? 100 * s.share : 0) + '%'; /* set by script: the page's policy allows that */
  const done = s.epochs.filter(e => finite(e.seconds)).length;
  const time = kind === 'running' && s.step ? `${duration(s.spent)} so far · about ${duration(s.left)} left` : s.step ? `took ${duration(s.spent)}` : '';
  return tile('Progress', percent, '%' + (time ? ' · ' + time : ''), bar,
    `epochs: ${number(done)} of ${number(s.total_epochs)} · steps: ${number(s.step)} of ${number(s.total)}`);
}

function tiles(s) {
  const timed = s.epochs.filter(e => finite(e.seconds) && finite(e.images_per_s)), a = s.start;
  const seconds = timed.reduce((sum, e) => sum + e.seconds, 0);
  const rows = timed.reduce((sum, e) => sum + e.seconds * e.images_per_s, 0), mean = seconds / timed.length;
  const devices = a.devices || [];
  return [
    tile('Training', number(mean, mean < 10 ? 2 : 1), 's/epoch', 'without evaluation'),
    tile('Throughput', number(rows / seconds), s.rows + '/s', 'mean over epochs'),
    tile('Data', s.data.name || 'unknown', '',
      `${number(s.data.train_rows)} for training, ${number(s.data.test_rows)} for ${s.judged}`),
    tile('Devices', number(devices.length), '', devices.length > 8
      ? devices.slice(0, 7).join(', ') + ', …' : devices.join(', ')),
    tile('Parameters', number(a.parameters), '',
      `${number(a.parameter_bytes / 1e6, 2)} MB; ${number(a.device_bytes / 1e6, 1)} MB on a device`),
    tile('Minibatch', number(a.batch_size), s.rows,
      `${number(a.batch_per_device)} per device, ${number(a.shards)} ${a.shards === 1 ? 'shard' : 'shards'}`,
      run.steps.length > 0 && finite(run.steps.at(-1).lr) && `learning rate ${Number(run.steps.at(-1).lr.toPrecision(4))}`),
  ];
}

/* ---- charts ----------------------------------------------------------------------------------------------- */

const LEFT = 52, RIGHT = 12, TOP = 12, BOTTOM = 36, HEIGHT = 250, PIXELS = 2;

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

/* Returns the points from x = lo to hi, merged so that there are at most `columns`. A merged point has the mean of
 * its points and their common range. A point is {from, x, sum, weight, lo, hi}; its value is sum/weight. */
function decimate(points, lo, hi, columns) {
  const first = Math.max(0, search(points, lo) - 1), end = Math.min(points.length, search(points, hi) + 2);
  const each = Math.max(1, Math.ceil((end - first) / columns)), out = [];
  for (let i = first; i < end; i += each) {
    const p = { ...points[i] }, stop = Math.min(end, i + each);
    for (let k = i + 1; k < stop; k++) {
      const q = points[k];
      p.x = q.x;
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

/* Returns a point of a curve without ranges. */
const point = (x, y) => ({ from: x, x, sum: y, weight: finite(y) ? 1 : 0, lo: y, hi: y, y });

/* Returns the value below which points have `share` of the total weight. */
function quantile(points, share) {
  const ranked = [...points].sort((p, q) => p.y - q.y);
  let left = share * ranked.reduce((sum, p) => sum + p.weight, 0);
  return ranked.find(p => (left -= p.weight) <= 0).y;
}

/* A chart. Options: title; x_name; digits of a value; from_zero; of_time: weights are seconds; most: largest value of
 * the y axis; view: {lo, hi}, shared by charts that zoom together, NaN: everything; empty: text if there are no points.
 * A curve: {name, colour, points, line, dots}. */
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
    this.all_button = button('all', 'show everything', () => this.show(NaN, NaN));
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
    const at = e => e.clientX - this.svg.getBoundingClientRect().left;
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
    if (finite(lo)) { /* at least the width of two points, and within the range of all points */
      const width = Math.min(Math.max(hi - lo, Math.min(4, all[1] - all[0])), all[1] - all[0]);
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
    this.curves = curves;
    this.events = events || [];
    this.draw();
  }

  /* Computes the y axis. Its top is above all means and ranges. For rates it is above the values of nearly all of the
   * time: when two steps are reported together, the second one seems to have taken no time. */
  scale(drawn) {
    const points = drawn.flatMap(c => c.drawn).filter(p => finite(p.y));
    let lo = Math.min(...points.map(p => p.y));
    let hi = this.of_time ? quantile(points, 0.98) : Math.max(...points.map(p => Math.max(p.y, finite(p.hi) ? p.hi : p.y)));
    if (this.from_zero && lo > 0) lo = 0;
    const step = tick_step(hi - lo || Math.abs(hi) || 1, 5);
    lo = Math.floor(lo / step + 1e-9) * step;
    hi = Math.ceil(hi / step - 1e-9) * step;
    if (hi <= lo) hi = lo + step;
    return { lo, hi: Math.min(hi, this.most ?? Infinity) > lo ? Math.min(hi, this.most ?? Infinity) : hi, step };
  }

  draw() {
    const range = this.range();
    this.width = this.svg.clientWidth || this.width || 560;
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
    this.columns = (drawn.find(c => c.drawn.length) || drawn[0]).drawn.filter(p => p.x >= x0 && p.x <= x1);
    this.X = x => LEFT + (x1 > x0 ? (x - x0) / span : 0.5) * (this.width - LEFT - RIGHT);
    this.Y = v => bottom - (v - y.lo) / (y.hi - y.lo) * (bottom - TOP);
    this.svg.setAttribute('viewBox', `0 0 ${this.width} ${HEIGHT}`);
    this.svg.setAttribute('aria-label', `${this.title}, ${this.x_name} ${number(x0)} to ${number(x1)}; `
      + this.curves.filter(c => c.points.length).map(c => `${c.name}: last ${number(c.points.at(-1).y, this.digits)}`).join('; '));
    this.svg.replaceChildren(...this.axes(y, x0, x1, bottom), this.plot(drawn, y, bottom),
      this.over = shape('g', {}));
    this.legend.replaceChildren(...drawn.filter(c => c.points.length).map(c => this.key_of(c)));
    this.mark();
  }

  key_of(c) {
    const end = c.points.at(-1), name = c.drawn.some(p => p.hi > p.lo) && c.ranged ? c.ranged : c.name;
    return el('span', { class: c.colour }, el('i', { class: c.line ? '' : 'dot' }), name + ' ',
      c.no_last ? null : el('b', {}, number(end.y, this.digits)));
  }

  axes(y, x0, x1, bottom) {
    const list = [], step = tick_step(x1 - x0, this.width < 460 ? 4 : 7, 1), digits = digits_of(y.step);
    for (let v = y.lo; v <= y.hi + y.step / 2; v += y.step)
      list.push(shape('path', { class: 'grid', d: `M${LEFT} ${this.Y(v)}H${this.width - RIGHT}` }),
        shape('text', { x: LEFT - 8, y: this.Y(v) + 4, 'text-anchor': 'end' }, brief(v, digits)));
    list.push(shape('path', { class: 'axis', d: `M${LEFT} ${bottom}H${this.width - RIGHT}` }));
    for (let v = Math.ceil(x0 / step) * step; v <= x1; v += step)
      list.push(shape('path', { class: 'axis', d: `M${this.X(v)} ${bottom}v4` }),
        shape('text', { x: this.X(v), y: bottom + 17, 'text-anchor': this.X(v) > this.width - 30 ? 'end' : 'middle' }, brief(v, 0)));
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
    for (const e of this.events) {
      const line = shape('path', { class: 'event', d: `M${this.X(e.step)} ${TOP}V${bottom}` });
      line.append(shape('title', {}, `${e.type}, step ${number(e.step)}`));
      group.append(line);
    }
    for (const c of drawn) {
      const there = c.drawn.filter(p => finite(p.y)), g = shape('g', { class: c.colour });
      if (c.line && there.some(p => p.hi > p.lo))
        g.append(shape('path', { class: 'band', d: 'M' + there.map(p => XY(p, p.hi)).join('L') + 'L'
          + [...there].reverse().map(p => XY(p, p.lo)).join('L') + 'Z' }));
      let d = '', pen = 'M';
      for (const p of c.drawn) { /* a missing point leaves a gap */
        if (finite(p.y)) d += pen + XY(p, p.y);
        pen = finite(p.y) ? 'L' : 'M';
      }
      if (c.line && d) g.append(shape('path', { class: 'curve', d }));
      if ((c.dots && there.length <= 60) || there.length === 1)
        for (const p of there) g.append(shape('circle', { class: 'dots', cx: this.X(p.x), cy: this.Y(p.y), r: 4 }));
      group.append(g);
    }
    return group;
  }

  /* Marks the point at the cursor, or the range that is being selected. */
  mark() {
    if (!this.columns) return;
    const bottom = HEIGHT - BOTTOM, marks = [];
    if (this.drag)
      marks.push(shape('rect', { class: 'chosen', x: Math.min(this.drag.from, this.drag.to), y: TOP,
        width: Math.abs(this.drag.to - this.drag.from), height: bottom - TOP }));
    const p = this.cursor === null || !this.columns.length ? null : this.columns[this.nearest(this.cursor)];
    const lines = p ? this.drawn.map(c => [c, c.drawn.find(q => q.x >= p.from && q.x <= p.x)]).filter(
      ([, q]) => q && finite(q.y)) : [];
    if (p) marks.push(shape('path', { class: 'cross', d: `M${this.X(p.x)} ${TOP}V${bottom}` }));
    for (const [c, q] of lines)
      marks.push(shape('circle', { class: 'dots ' + c.colour, cx: this.X(q.x), cy: Math.max(TOP, this.Y(q.y)), r: 4.5 }));
    this.over.replaceChildren(...marks);
    if (!p) return this.tip.replaceChildren();
    const range = q => q.hi > q.lo ? ` (${number(q.lo, this.digits)} to ${number(q.hi, this.digits)})` : '';
    this.tip.replaceChildren(`${this.x_name} ${number(p.from)}` + (p.from < p.x ? ` to ${number(p.x)}` : ''),
      ...lines.map(([c, q]) => el('div', { class: c.colour }, el('i', {}),
        `${c.name}: ${number(q.y, this.digits)}${range(q)}`)));
    const x = this.X(p.x), right = x < this.width / 2;
    this.tip.style.left = right ? x + 28 + 'px' : '';
    this.tip.style.right = right ? '' : this.width - x + 28 + 'px';
    this.tip.style.top = this.svg.getBoundingClientRect().top - this.figure.getBoundingClientRect().top + TOP + 'px';
  }
}

const by_epoch = { lo: NaN, hi: NaN }, by_step = { lo: NaN, hi: NaN };
const charts = {
  accuracy: new Chart({ title: 'Accuracy', x_name: 'epoch', digits: 4, most: 1, view: by_epoch,
    empty: 'The first epoch is not over yet.' }),
  loss: new Chart({ title: 'Loss', x_name: 'step', digits: 4, from_zero: true, view: by_step,
    empty: 'No values were recorded.' }),
  rate: new Chart({ title: 'Throughput', x_name: 'step', digits: 0, from_zero: true,
    of_time: true, view: by_step, empty: 'No values were recorded.' }),
};

/* Returns the points of steps, with values `sum` over `weight`. */
function step_points(of) {
  return run.steps.map(r => {
    const p = { from: r.step - (r.steps || 1) + 1, x: r.step, ...of(r) };
    p.y = p.weight > 0 ? p.sum / p.weight : NaN;
    return p;
  });
}

function draw_charts(s) {
  const loss = step_points(r => {
    const there = finite(r.loss), [lo, hi] = r.loss_range || [r.loss, r.loss], weight = there ? r.steps || 1 : 0;
    return { sum: there ? r.loss * weight : 0, weight, lo: there ? lo : NaN, hi: there ? hi : NaN };
  });
  const rate = step_points(r => { /* rows over seconds, so that means of rates are right */
    const there = r.images_per_s > 0, [lo, hi] = r.rate_range || [r.images_per_s, r.images_per_s];
    const rows = r.rows || r.steps || 1;
    return { sum: there ? rows : 0, weight: there ? rows / r.images_per_s : 0, lo: there ? lo : NaN, hi: there ? hi : NaN };
  });
  const epochs = (x, y) => s.epochs.filter(e => finite(e[y]) && finite(e[x])).map(e => point(e[x], e[y]));
  const events = s.events.filter(r => finite(r.step));
  charts.accuracy.name(s.metric.name[0].toUpperCase() + s.metric.name.slice(1));
  charts.rate.name('Throughput', s.rows + '/s');
  charts.accuracy.set([
    { name: 'training (mean over the epoch)', colour: 'c2', line: true, dots: true, points: epochs('epoch', s.metric.trained) },
    { name: s.judged, colour: 'c4', line: true, dots: true, points: epochs('epoch', s.metric.key) }]);
  charts.loss.set([
    { name: 'minibatch', ranged: 'minibatches: mean and range', colour: 'c2', line: true, points: loss },
    { name: s.judged, colour: 'c4', dots: true, points: epochs('at', 'test_loss') }], events);
  charts.rate.set([{ name: 'step', ranged: 'steps: mean and range', colour: 'c2', line: true, no_last: true, points: rate }], events);
}

/* ---- classes ---------------------------------------------------------------------------------------------- */

/* The confusion matrix of the newest evaluation: a row for each class, a column for each predicted class. The
 * intensity of a cell is the root of its share of the row, so that a few errors are visible beside many correct rows.
 * A matrix of few classes shows names and counts, one of many classes has ticks. */
const NAMED = 24, matrix = el('figure', {}), classes = el('figure', {});

function draw_matrix(e, name, judged) {
  const n = e.confusion.length, named = n <= NAMED, longest = Math.max(...e.confusion.map((_, k) => name(k).length));
  const left = named ? Math.min(150, 16 + 7 * longest) : 40, below = named && longest > 3 ? Math.min(110, 16 + 5.2 * longest) : 40, size = 500, cell = size / n;
  const tilt = named && longest > 3 ? -40 : 0;
  const svg = shape('svg', { viewBox: `0 0 ${left + size + 6} ${size + below + 6}`, class: 'matrix', role: 'img',
    'aria-label': `Confusion matrix of ${n} classes after epoch ${e.epoch}; the table beside it has the same by class.` });
  e.confusion.forEach((row, i) => {
    const all = row.reduce((a, b) => a + b, 0), y = 6 + i * cell;
    row.forEach((count, k) => {
      if (!count) return;
      const x = left + k * cell, g = shape('g', { class: i === k ? 'c3' : 'c4' });
      const box = shape('rect', { x, y, width: cell, height: cell, 'fill-opacity': (named ? 0.06 : 0.2) + 0.8 * Math.sqrt(count / all) });
      box.append(shape('title', {}, `${name(i)}: ${number(count)} of ${number(all)} taken for ${name(k)}`));
      g.append(box);
      if (named) g.append(shape('text', { x: x + cell / 2, y: y + cell / 2 + 4, 'text-anchor': 'middle' }, count));
      svg.append(g);
    });
    if (!named && i % 10) return;
    const middle = y + cell / 2, x = left + (i + 0.5) * cell, foot = size + (named ? 16 : 20);
    svg.append(shape('text', { x: left - 8, y: middle + 4, 'text-anchor': 'end' }, named ? name(i) : i),
      shape('text', { x, y: foot, 'text-anchor': tilt ? 'end' : 'middle', transform: `rotate(${tilt} ${x} ${foot})` },
        named ? name(i) : i));
  });
  svg.append(shape('rect', { class: 'axis', x: left, y: 6, width: size, height: size }));
  matrix.replaceChildren(el('figcaption', {}, 'Taken for', el('small', {},
    `${judged} rows by class (down) and what they were taken for (across), epoch ${e.epoch}`)), svg);
}

function draw_classes(s) {
  const e = s.epochs.findLast(r => r.confusion), names = s.data.class_names || [], figures = [matrix, classes];
  figures.forEach(p => { p.style.display = e ? '' : 'none'; });
  if (!e || draw_classes.drawn === e.confusion) return;
  draw_classes.drawn = e.confusion;
  const name = k => names[k] === undefined ? String(k) : names[k];
  draw_matrix(e, name, s.judged);
  const rows = e.confusion.map((row, k) => {
    const most = row.reduce((a, c, i) => i !== k && c > (row[a] ?? 0) ? i : a, -1);
    return [name(k), number(row.reduce((a, b) => a + b, 0)), number(e.precision[k], 4), number(e.recall[k], 4),
      most < 0 ? '' : `${name(most)} (${number(row[most])})`];
  });
  classes.replaceChildren(el('figcaption', {}, 'Classes', el('small', {}, `epoch ${e.epoch}`)),
    table(['class', 'rows', 'precision', 'recall', 'taken for most often'], rows));
}

/* ---- tables ----------------------------------------------------------------------------------------------- */

const PHASES = [['gather_s', 'gather'], ['forward_s', 'forward'], ['backward_s', 'backward'],
  ['comm_exposed_s', 'all-reduce'], ['wait_s', 'wait'], ['apply_s', 'apply']];

function table(head, rows) {
  return el('div', { class: 'scroll', tabindex: 0 }, el('table', {},
    el('thead', {}, el('tr', {}, ...head.map(h => el('th', { scope: 'col' }, h)))),
    el('tbody', {}, ...rows.map(r => el('tr', {}, ...r.map((c, i) => i ? el('td', {}, c) : el('th', { scope: 'row' }, c)))))));
}

const phase_key = (name, i) => el('span', { class: 'key c' + (i + 1) }, el('i', {}), name);

/* The parts of a step's time: a bar for each worker, and a table. */
const times = el('figure', {});

function draw_times() {
  const t = run.times, caption = el('figcaption', {}, 'Where a step’s time goes', el('small', {}, 'ms, mean'));
  if (!t || !t.workers.length) return times.replaceChildren(caption, el('p', { class: 'none' }, 'No times were recorded.'));
  const rows = t.workers.map(w => PHASES.map(([key]) => 1e3 * (w[key] || 0) / t.steps));
  const longest = Math.max(...rows.map(r => r.reduce((a, b) => a + b, 0))) || 1;
  const bar = (r, w) => el('span', { class: 'row' }, ...r.map((ms, i) => {
    const part = el('i', { class: 'c' + (i + 1), title: `worker ${w}, ${PHASES[i][1]}: ${number(ms, 2)} ms` });
    part.style.width = 100 * ms / longest + '%';
    return part;
  }).filter((_, i) => r[i] > 0));
  times.replaceChildren(caption,
    el('div', { class: 'stack', 'aria-hidden': 'true' }, ...rows.flatMap((r, w) => [el('span', {}, 'worker ' + w), bar(r, w)])),
    table(['', ...rows.map((_, w) => 'worker ' + w)],
      PHASES.map(([, name], i) => [phase_key(name, i), ...rows.map(r => number(r[i], 2))])));
}

/* Returns a table of the newest step: the parts of each worker's time, and the length of its inbox. */
function newest_workers(s) {
  if (!live || s.end || !run.newest || !run.newest.workers.length) return [];
  const workers = run.newest.workers, all = workers.map(w => PHASES.reduce((sum, [key]) => sum + (w[key] || 0), 0) || 1);
  const rows = PHASES.map(([key, name], i) => [phase_key(name, i),
    ...workers.map((w, k) => Math.round(100 * (w[key] || 0) / all[k]) + ' %')]);
  return [el('figure', {}, el('figcaption', {}, 'Workers in the newest step', el('small', {}, 'step ' + number(run.newest.step))),
    table(['', ...workers.map(w => 'worker ' + w.worker)],
      [['items in the inbox', ...workers.map(w => w.queued ?? 0)], ...rows]))];
}

function epoch_table(s) {
  const all = [['train_loss', 'training loss'], ['train_accuracy', 'training accuracy'], ['test_loss', s.judged + ' loss'],
    ['test_accuracy', s.judged + ' accuracy'], ...OTHERS.map(([k, n]) => [k, s.judged + ' ' + n])];
  const some = all.filter(([k]) => k.endsWith('loss') || s.epochs.some(e => finite(e[k])));
  return table(['epoch', ...some.map(m => m[1]), 'seconds'],
    s.epochs.map(e => [e.epoch, ...some.map(([k]) => number(e[k], 4)), number(e.seconds, 2)]));
}

function facts(s) {
  const { device_model, instruction_set, library } = s.start;
  const list = [['Host', s.live.host], ['Run directory', s.live.run_dir], ['Device', device_model], ['Instruction set', instruction_set], ['Library', library],
    ['Data from', s.data.source], ['Data is', s.data.payload],
    ['Started', when(s.start.time)], ['Ended', s.end && when(s.end.time)], ['Checkpoint', s.end && s.end.checkpoint],
    ['Weights’ SHA-256', s.end && s.end.weights_sha256]];
  return el('dl', { class: 'facts' }, ...list.filter(f => f[1]).flatMap(([k, v]) => [el('dt', {}, k), el('dd', {}, v)]));
}

/* ---- the page --------------------------------------------------------------------------------------------- */

const part = (tag, name) => el(tag, { class: name });
const places = { head: part('header', ''), notes: part('div', ''), first: part('section', 'first'),
  tiles: part('section', 'tiles'), workers: part('section', 'workers'), epochs: part('div', ''), facts: part('div', ''),
  config: el('pre', { tabindex: 0 }) };
const fold = (title, content, open) => el('details', open ? { open: '' } : {}, el('summary', {}, title), content);

function render() {
  const s = summary(), config = JSON.stringify(s.config, null, 2);
  places.head.replaceChildren(...heading(s));
  places.notes.replaceChildren(...notes(s));
  places.first.replaceChildren(metric_tile(s), progress_tile(s));
  places.tiles.replaceChildren(...tiles(s));
  draw_charts(s);
  draw_classes(s);
  draw_times();
  places.workers.replaceChildren(...newest_workers(s));
  places.epochs.replaceChildren(epoch_table(s));
  places.facts.replaceChildren(facts(s));
  if (places.config.textContent !== config) places.config.textContent = config;
}

/* Requests new records once a second, for as long as the page is open: a server that is gone may come back, with
 * this run or another one. */
const records = document.getElementById('records'), from = records.dataset.from;
const live = from ? { gone: false, since: new Date().toLocaleTimeString() } : null;

async function renew() {
  if (!document.hidden) try {
    const have = [run.id, run.width, run.steps.length, run.others.length].join(',');
    const answer = await fetch(`${from}?have=${have}`, { cache: 'no-store' });
    if (!answer.ok) throw new Error(answer.status);
    take(await answer.text());
    Object.assign(live, { gone: false, since: new Date().toLocaleTimeString() });
    render();
  } catch (e) {
    if (!(e instanceof TypeError) && !/^5/.test(e.message)) console.error(e);
    live.gone = true;
    render();
  }
  setTimeout(renew, 1000);
}

document.getElementById('main').append(places.head, places.notes, places.first, places.tiles,
  el('section', { class: 'charts' }, ...Object.values(charts).map(c => c.figure), times),
  el('p', { class: 'hint', id: 'hint' }, 'Drag across a curve, or press +, to look closer; double-click, or press all, to see everything. With keys, on a curve: ',
    ...[['←', ''], ['→', ' read values, '], ['+', ''], ['−', ' look closer or less close, '], ['shift ←', ''], ['shift →', ' move, '],
      ['0', ' everything.']].flatMap(([k, t]) => [el('kbd', {}, k), t || ' '])),
  el('section', { class: 'charts classes' }, matrix, classes), places.workers, fold('Epochs', places.epochs), fold('Where and what', places.facts, true), fold('Config', places.config));
take(records.textContent);
render();
new ResizeObserver(() => Object.values(charts).forEach(c => c.draw())).observe(document.querySelector('.charts'));
if (live) renew();
