/* SPDX-License-Identifier: MIT */
/* Draws the curves of several runs in the same charts: the page of `trainer compare`. */

/* ---- records ---------------------------------------------------------------------------------------------- */

/* The records that src/page/compare.c writes: one of type "verdict" if the runs can be ranked, records of type "doubt"
 * about files of weights and of type "same" about runs with identical weights, one of type "others" if something beside
 * the configs differs, the rows of the tables, and for each run a record of type "run", followed by the records that
 * src/page/page.h describes. */
const runs = [], rows = [], same = [], sentences = { verdict: [], doubt: [], others: [] };

function take(text) {
  for (const line of text.split('\n')) {
    if (!line.trim()) continue;
    const r = JSON.parse(line), run = runs.at(-1);
    if (r.type === 'run') runs.push({ ...r, steps: [], epochs: new Map(), events: [], shown: true, colour: 'r' + (runs.length + 1) });
    else if (r.type === 'compared') rows.push(r);
    else if (r.type === 'same') same.push(r);
    else if (r.type in sentences) sentences[r.type].push(r.text);
    else if (r.type === 'run_start') run.images = r.data && r.data.images !== false;
    else if (event_of(r)) run.events.push(r);
    else if (r.type === 'step') run.steps.push(r);
    else if (r.type === 'epoch' || r.type === 'eval')
      run.epochs.set(r.epoch, { ...run.epochs.get(r.epoch), ...r, at: run.epochs.get(r.epoch)?.at ?? r.at });
  }
}

/* Sets short names of the runs: their paths without the directories that all paths begin with. */
function short_names() {
  const parts = runs.map(r => r.path.replace(/\/+$/, '').split('/'));
  while (parts.every(p => p.length > 1 && p[0] === parts[0][0])) parts.forEach(p => p.shift());
  runs.forEach((r, i) => { r.short = parts[i].join('/'); });
}

/* ---- the x axis ------------------------------------------------------------------------------------------- */

/* The x axes of curves of steps. `of` returns a function from a step record to its x: the number of the step, the
 * number of epochs so far, or the seconds of training so far. */
const axes = {
  step: { name: 'step', digits: 0, of: () => r => r.step },
  epoch: { name: 'epoch', digits: 2, of: run => {
    const ends = [0, ...[...run.epochs.values()].map(e => e.at)], size = ends.length > 1 ? ends[1] : 0;
    return r => {
      const e = r.epoch || 1, begin = ends[e - 1] ?? ends.at(-1), end = ends[e] ?? begin + size;
      return end > begin ? e - 1 + Math.min(1, (r.step - begin) / (end - begin)) : r.step;
    };
  } },
  time: { name: 'seconds of training', digits: 1, of: () => {
    let sum = 0;
    return r => { sum += r.images_per_s > 0 ? (r.rows || r.steps || 1) / r.images_per_s : 0; return sum; };
  } },
};
let axis = 'step';

/* Returns the seconds of training of the run that took longest. */
const longest = list => Math.max(...list.map(run => run.steps.map(axes.time.of(run)).at(-1) || 0));

/* Returns a point for each step record of a run. `of` returns the value and the weight of a record. */
function step_points(run, of) {
  const x = axes[axis].of(run), list = [];
  let from = 0;
  for (const r of run.steps) {
    const [y, weight] = of(r), to = x(r);
    list.push({ from: axis === 'step' ? r.step - (r.steps || 1) + 1 : from, x: to, sum: finite(y) ? y * weight : 0,
      weight: finite(y) ? weight : 0, lo: NaN, hi: NaN, y: finite(y) ? y : NaN });
    from = to;
  }
  return list;
}

/* Returns a function from the number of a step to its x. */
function x_of_step(run) {
  const x = axes[axis].of(run), all = run.steps.map(x);
  return step => {
    const i = run.steps.findIndex(r => r.step >= step);
    return axis === 'step' || !all.length ? step : all.at(i);
  };
}

/* Returns the events of a run as marks on its curves of steps. */
function marks(run) {
  const x = x_of_step(run);
  return run.events.map(e => ({ x: x(e.step), colour: run.colour, sign: event_of(e).sign, text: `${run.letter}: ${event_of(e).text}` }));
}

/* Returns the epochs of a run if their mean rates are drawn instead of the rates of steps, else []. The rates of steps
 * that take less than a millisecond are noise, because several are reported together. */
function timed_epochs(run) {
  const timed = [...run.epochs.values()].filter(e => e.images_per_s > 0 && e.seconds > 0 && e.at > 0);
  return timed.length > 2 && timed.reduce((sum, e) => sum + e.seconds, 0) < 1e-3 * timed.at(-1).at ? timed : [];
}

function rate_points(run) {
  const x = x_of_step(run), timed = timed_epochs(run);
  return timed.length ? timed.map(e => ({ ...point(x(e.at), e.images_per_s), sum: e.seconds * e.images_per_s, weight: e.seconds }))
    : step_points(run, s => s.images_per_s > 0 ? [s.images_per_s, (s.rows || s.steps || 1) / s.images_per_s] : [NaN, 0]);
}

/* ---- charts ----------------------------------------------------------------------------------------------- */

const by_epoch = { lo: NaN, hi: NaN }, by_step = { lo: NaN, hi: NaN };
const chart = (title, more) => new Chart({ title, x_name: 'epoch', digits: 4, near: true, view: by_epoch,
  empty: 'No values were recorded.', ...more });
const charts = {
  metric: chart('Accuracy', { most: 1 }),
  trained: chart('Training accuracy', { most: 1 }),
  test_loss: chart('Loss', { from_zero: true, empty: 'No epoch was evaluated yet.' }),
  loss: chart('Training loss', { from_zero: true, view: by_step }),
  lr: chart('Learning rate', { from_zero: true, trim: true, view: by_step }),
  norm: chart('Gradient norm', { from_zero: true, trim: true, view: by_step }),
  rate: chart('Throughput', { digits: 0, from_zero: true, of_time: true, view: by_step }),
};
/* The charts above the tables, so that a first screen shows how the runs went. */
const results = [charts.metric, charts.test_loss];
const has_norms = () => runs.some(r => r.steps.some(s => finite(s.grad_norm)));
const common = (key, otherwise) => runs.every(r => r[key] === runs[0][key]) ? runs[0][key] : otherwise;

function draw() {
  const shown = runs.filter(r => r.shown), { name } = axes[axis], digits = axis === 'time' && longest(shown) < 10 ? 3 : axes[axis].digits;
  const curves = (points, more) => shown.map(r => ({ name: r.short, colour: r.colour, line: true, points: points(r), ...more }));
  const epochs = key => r => [...r.epochs.values()].filter(e => finite(e[key(r)])).map(e => point(e.epoch, e[key(r)]));
  const judged = capital(common('judged', 'evaluation'));
  const metrics = [...new Set(shown.map(r => r.metric))], several = metrics.length > 1;
  charts.metric.name(`${judged} ${several ? 'metric' : metrics[0] ?? common('metric', 'metric')}`);
  charts.metric.none.textContent = several ? `The runs have different metrics (${metrics.join(', ')}): the table has their values.`
    : 'No epoch was evaluated yet.';
  charts.metric.most = shown.every(r => r.metric_rises) ? 1 : undefined;
  charts.test_loss.name(`${judged} loss`);
  charts.rate.name('Throughput', (shown.every(r => r.images) ? 'images/s' : 'rows/s')
    + (shown.some(r => timed_epochs(r).length) ? '; steps under 1 ms: means of epochs' : ''));
  const events = shown.flatMap(marks);
  charts.metric.set(several ? [] : curves(epochs(r => r.metric_key), { dots: true }));
  charts.trained.set(curves(epochs(() => 'train_accuracy'), { dots: true }));
  charts.test_loss.set(curves(epochs(() => 'test_loss'), { dots: true }));
  for (const c of [charts.loss, charts.lr, charts.norm, charts.rate]) Object.assign(c, { x_name: name, x_digits: digits });
  charts.loss.set(curves(r => step_points(r, s => [s.loss, s.steps || 1])), events);
  charts.lr.set(curves(r => step_points(r, s => [s.lr, 1])), events);
  charts.norm.set(curves(r => step_points(r, s => [s.grad_norm, 1])).filter(c => c.points.some(p => finite(p.y))), events);
  charts.rate.set(curves(rate_points, { no_last: true }), events);
}

/* ---- the page --------------------------------------------------------------------------------------------- */

/* Returns a button for each run, which shows or hides the run's curves. */
function run_buttons() {
  return runs.map(r => {
    const b = el('button', { type: 'button', class: 'run ' + r.colour, 'aria-pressed': 'true', title: 'show or hide ' + r.path },
      el('i', {}), el('b', {}, r.letter), r.short, el('small', {}, ' ' + r.state));
    b.addEventListener('click', () => {
      r.shown = !r.shown;
      b.setAttribute('aria-pressed', String(r.shown));
      draw();
    });
    return b;
  });
}

/* Returns the buttons that choose the x axis of the curves of steps. */
function axis_buttons() {
  const buttons = Object.keys(axes).map(key => {
    const b = el('button', { type: 'button', 'aria-pressed': String(key === axis) }, key);
    b.addEventListener('click', () => {
      axis = key;
      Object.assign(by_step, { lo: NaN, hi: NaN });
      buttons.forEach(other => other.setAttribute('aria-pressed', String(other === b)));
      draw();
    });
    return b;
  });
  return el('p', { class: 'axes', role: 'group', 'aria-label': 'x axis' },
    `Training loss, learning rate${has_norms() ? ', gradient norm' : ''} and throughput by `, ...buttons);
}

/* Returns the letter of a run with its colour. The name is too long for the head of a column. */
const letter = r => el('span', { class: 'key ' + r.colour, title: r.path }, el('i', {}), r.letter);

/* The figures that are whole numbers. */
const COUNTS = ['steps', 'rows/s', 'parameters'];

/* Returns a table with a column for each run. On a narrow screen, page.css shows the cells of a row one after another
 * below the row's name, each with its letter from `data-run`. */
function compared(title, kind, none) {
  const some = rows.filter(r => r.kind === kind);
  if (!some.length) return el('figure', {}, el('figcaption', {}, title), el('p', { class: 'none' }, none));
  const text = (v, name) => !v ? '–' : kind === 'figure' && COUNTS.includes(name) ? number(Number(v)) : v;
  const made = table(['', ...runs.map(letter)], some.map(r => [r.name, ...r.values.map(v => text(v, r.name))]));
  for (const row of made.querySelectorAll('tbody tr'))
    row.querySelectorAll('td').forEach((cell, i) => { cell.dataset.run = runs[i].letter; cell.classList.add(runs[i].colour); });
  return el('figure', {}, el('figcaption', {}, title), made);
}

take(document.getElementById('records').textContent);
short_names();
const synthetic = rows.some(r => r.name === 'data' && r.values.some(v => v.includes('SYNTHETIC')));
document.getElementById('main').append(big_link,
  el('header', {}, el('div', { class: 'head' }, el('h1', {}, `${runs.length} runs compared`)),
    el('p', { class: 'sub' }, 'A button hides and shows the curves of its run. Its letter stands for the run in the tables. '
      + 'Where curves coincide, the later one is dashed.')),
  ...sentences.verdict.map(text => el('p', { class: 'verdict' }, text)),
  ...sentences.doubt.map(text => el('p', { class: 'note loud', role: 'note' }, el('strong', {}, 'Warning:'), ' ' + text)),
  ...same.map(r => el('p', { class: r.but ? 'note loud' : 'note good', role: 'note' }, el('strong', {}, r.runs + ':'), ' ',
    hash_line('identical weights', r.sha256), ...r.but ? [el('br', {}), r.but] : [])),
  synthetic ? el('p', { class: 'note loud', role: 'note' }, el('strong', {}, 'SYNTHETIC DATA.'),
    ' The images of at least one run were made up by the program: these results say nothing of real data.') : '',
  el('p', { class: 'runs' }, ...run_buttons()),
  el('section', { class: 'charts curves' }, ...results.map(c => c.figure)),
  el('section', { class: runs.length > 2 ? 'charts tables several' : 'charts tables' }, compared('Final figures', 'figure', ''),
    compared('What the configs differ in', 'config', 'The configs are equal.'), ...sentences.others.map(text => compared(text, 'given', ''))),
  axis_buttons(),
  el('section', { class: 'charts curves' }, ...Object.values(charts).filter(c => !results.includes(c) && (c !== charts.norm || has_norms()))
    .map(c => c.figure)),
  el('p', { class: 'hint', id: 'hint' }, ...hint()));
draw();
new ResizeObserver(() => Object.values(charts).forEach(c => c.draw())).observe(document.querySelector('.curves'));
