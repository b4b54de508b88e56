/* SPDX-License-Identifier: MIT */
/* Draws a run from its records. The page contains them or, while the run is in progress, requests them from the
 * server's path /records. The contents of records are inserted as text, never as markup. */

/* ---- records ---------------------------------------------------------------------------------------------- */

/* The records that have been received, as src/page/page.h describes them. `id`: number of the run; `width`: number of
 * steps that one step record stands for; `steps`: the step records; `others`: all other records, in order; `times`,
 * `newest`: the newest record of type "times" and of type "newest"; `cut`: number of the last line of metrics.jsonl if
 * that line is incomplete, else 0; `metrics`: all metrics; `metric`: key of the metric of the run's evaluations. */
const run = { id: 0, width: 1, steps: [], others: [], times: null, newest: null, cut: 0, metrics: [], metric: '' };

function take(text) {
  for (const line of text.split('\n')) {
    if (!line.trim()) continue;
    const r = JSON.parse(line);
    if (r.type === 'page') {
      if (r.run !== run.id) Object.assign(run, { times: null, newest: null });
      Object.assign(run, { id: r.run, width: r.width, cut: r.cut_line, metric: r.metric });
      run.steps.length = r.steps_from;
      run.others.length = r.others_from;
    } else if (r.type === 'metrics') run.metrics = r.all;
    else if (r.type === 'step') run.steps.push(r);
    else if (r.type === 'times') run.times = r;
    else if (r.type === 'newest') run.newest = r.step;
    else run.others.push(r);
  }
}

const last = type => run.others.findLast(r => r.type === type);

/* Returns whether a record says the same as this warning: a record of a fault, or of a step that was not applied. */
const is_reported = warning => run.others.some(r => r.type === 'fault' ? warning.text.includes(r.error)
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
    r => ['fault', 'nonfinite', 'arrival', 'failed_arrival', 'resume'].includes(r.type) || (r.type === 'warning' && !is_reported(r))) };
  s.live = { ...last('program'), ...last('live') }; /* host, directory and command of the run */
  s.data = start.data || {};
  s.weights = end ? (last('weights') || { sha256: end.weights_sha256 }).sha256 : null;
  s.doubt = end ? last('weights')?.doubt : null;
  s.judged = config.data && config.data.validation > 0 ? 'validation' : 'test';
  s.rows = s.data.images === false ? 'rows' : 'images'; /* records of older versions do not have data.images */
  s.synthetic = Boolean(s.data.synthetic || (end && end.synthetic));
  s.name = config.name || 'run';
  s.metric = run.metrics.find(m => m.key === run.metric) || { key: 'test_loss', name: 'loss', rises: false };
  s.tested = s.epochs.filter(e => finite(e[s.metric.key]));
  s.step = run.steps.length ? run.steps.at(-1).step : end ? end.steps : 0;
  return Object.assign(s, progress(s));
}

/* Returns the progress of the run and an estimate of the remaining time. The estimate is the number of missing steps
 * times the mean duration of the newest tenth of the steps, plus the time of the missing evaluations. */
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
  const computing = sum(run.steps, seconds) + sum(evaluations, e => e.eval_s);
  const spent = s.end && s.start.time && !s.events.some(r => r.type === 'resume') /* the records' times are whole seconds */
    ? Math.max((Date.parse(s.end.time) - Date.parse(s.start.time)) / 1000, computing) : computing;
  return { total_epochs, total, left, spent, share: total > 0 ? Math.min(1, s.step / total) : NaN };
}

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
  return [el('div', { class: 'head' }, el('h1', {}, s.name), el('span', { class: 'state ' + kind }, name), verified()),
    el('p', { class: 'sub' }, facts.join(' · ') || 'Data and devices are being opened; the figures follow.')];
}

/* The origin of the result of `trainer verify`. Whoever gave away the run's directory can have written the file. */
const VERIFIED_BY = 'according to verified.json in the run’s directory';

/* Returns a mark that says what `trainer verify` found, or null. */
function verified() {
  const v = last('verified');
  if (!v) return null;
  const [kind, text] = !v.holds ? ['failed', 'NOT verified'] : v.result.startsWith('verified') ? ['finished', 'verified']
    : ['unknown', 'not refuted'];
  return el('span', { class: 'state ' + kind, title: `${v.result} (${VERIFIED_BY})` }, text);
}

/* Shows the hash of the weights. The element stays in the page, so that a new record does not end the user's selection. */
function draw_hash(s) {
  if (draw_hash.drawn === s.weights) return;
  draw_hash.drawn = s.weights;
  places.hash.replaceChildren(...s.weights ? [hash_line('Weights’ SHA-256', s.weights)] : []);
}

function note(title, text, kind = '') {
  return el('p', { class: 'note ' + kind, role: 'note' }, el('strong', {}, title), ' ' + text);
}

/* Describes an event that the curves do not show: a lost worker, a step that was not applied, a host that was
   admitted or was not, or a resumed run. */
function event_note(r) {
  if (r.type === 'resume')
    return note(`Resumed after step ${number(r.step)}.`, 'The earlier steps were computed by another process.'
      + (r.missing_records ? ` ${number(r.missing_records)} earlier records are missing, because another program had moved
        or cut their file.` : ''));
  if (r.type === 'warning') return note('Warning:', r.text);
  if (r.type === 'arrival')
    return note(`After step ${number(r.step)} host ${r.host} was admitted.`, `Devices: ${r.devices.join(', ')}.`);
  if (r.type === 'failed_arrival') return note(`After step ${number(r.step)} host ${r.host} was not admitted.`, r.error);
  if (r.type === 'nonfinite')
    return r.until > r.step
      ? note(`Steps ${number(r.step)} to ${number(r.until)} were not applied.`, 'Their losses were not finite.')
      : note(`Step ${number(r.step)} was not applied.`, `The loss of shard ${r.shard}, on worker ${r.worker}, was not finite.`);
  return note(`Step ${number(r.step)}: ${r.worker < 0 ? 'host' : `worker ${r.worker},`} ${r.device}${r.worker < 0 ? '' : ','} failed:`,
    `${r.error} (${r.action}; devices left: ${r.devices_left})`);
}

/* Largest number of events whose notes are shown in full, and of notes; the notes of more events are folded. */
const EVENTS_OPEN = 5, EVENTS_SHOWN = 100;

/* Returns the events with one of steps `step` to `until` in place of those of successive steps that were not applied. */
function merged(events) {
  const list = [];
  for (const r of events) {
    const before = list.at(-1);
    if (r.type === 'nonfinite' && before?.type === r.type && r.step - before.until <= 1) before.until = r.step;
    else list.push(r.type === 'nonfinite' ? { ...r, until: r.step } : r);
  }
  return list;
}

function notes(s) {
  const status = s.end ? s.end.status : '', list = [];
  if (live && live.gone && s.end)
    list.push(note('Ended.', 'The run has ended, and so has its server.'
      + (s.live.run_dir ? ` \`${s.live.program} report ${s.live.run_dir}\` writes this page to a file.` : '')));
  else if (live && live.gone)
    list.push(note('No answer.', `The server does not answer. The page shows its state of ${live.since} and keeps asking.`));
  if (s.synthetic)
    list.push(note('SYNTHETIC DATA.',
      'The images were made up by the program. The results say nothing about real data.', 'loud'));
  if (s.data.payload === 'differs')
    list.push(note('Other data.',
      'The files are not the published ones of this name. The results cannot be compared with published results.', 'loud'));
  if (s.doubt) list.push(note('Warning:', s.doubt, 'loud'));
  const v = last('verified');
  if (v && !v.holds) list.push(note('NOT verified:', v.result.replace(/^NOT verified: /, ''), 'loud'));
  if (status === 'failed') list.push(note('The run failed:', s.end.error || 'no reason was given', 'loud'));
  if (status === 'interrupted')
    list.push(note('Interrupted.', 'The run was stopped before its last epoch was over.'));
  if (!s.end && !live) list.push(note('No end.', 'The run was in progress when this page was written, or it was killed.'));
  if (s.end && s.end.stopped_early) list.push(note('Stopped early.', s.end.stopped_early + '.'));
  if (run.cut)
    list.push(note('Cut off.',
      `The last record, line ${run.cut} of metrics.jsonl, is incomplete and is not shown.`));
  const events = merged(s.events), told = events.slice(0, EVENTS_SHOWN).map(event_note);
  if (events.length > EVENTS_SHOWN)
    told.push(note('More events:', `metrics.jsonl contains ${number(events.length - EVENTS_SHOWN)} further ones.`));
  if (events.length <= EVENTS_OPEN) return [...list, ...told];
  const before = places.notes.querySelector('details'); /* stays as the user has left it */
  list.push(fold(`${number(events.length)} events`, el('div', {}, ...told), before && before.open));
  return list;
}

/* Returns the parts of a name such that a line may be broken after each underscore. */
const breakable = text => String(text).split(/(?<=_)/).flatMap((t, i) => i ? [el('wbr'), t] : [t]);

function tile(name, value, unit, ...details) {
  return el('dl', { class: 'tile' }, el('dt', {}, name),
    el('dd', /[a-z]/i.test(value) ? { class: 'name' } : {}, ...breakable(value), unit && value !== '–' ? el('small', {}, ' ' + unit) : null),
    ...details.filter(Boolean).map(d => typeof d === 'string' ? el('dd', { class: 'detail' }, d) : d));
}

function metric_tile(s) {
  const newest = s.tested.at(-1), { key, name, rises } = s.metric;
  const epoch = key === 'test_accuracy' && s.epochs.findLast(e => finite(e.train_accuracy));
  if (!newest)
    return tile(`${capital(s.judged)} ${name}`, '–', '', 'no evaluation yet');
  const best = s.tested.reduce((a, e) => (rises ? e[key] > a[key] : e[key] < a[key]) ? e : a); /* of equal values the first, as in checkpoint.best */
  const others = run.metrics.filter(m => m.key !== key && finite(newest[m.key])).map(m => `${m.name} ${figure(newest[m.key])}`);
  return tile(`${capital(s.judged)} ${name}`, figure(newest[key]), '',
    [`after epoch ${newest.epoch}, loss ${figure(newest.test_loss)}`, ...others].join(', ')
      + (best === newest ? '' : `; best ${figure(best[key])} after epoch ${best.epoch}`),
    epoch && `training: ${figure(epoch.train_accuracy)}, mean over the steps of epoch ${epoch.epoch}`);
}

function progress_tile(s) {
  const percent = finite(s.share) ? Math.floor(100 * s.share) : 0, [kind] = state(s);
  const bar = el('dd', { class: 'bar ' + kind, role: 'progressbar', 'aria-label': 'steps done', 'aria-valuemin': 0,
    'aria-valuemax': 100, 'aria-valuenow': percent }, el('i', {}));
  bar.firstChild.style.width = (finite(s.share) ? 100 * s.share : 0) + '%'; /* set by script: the page's policy allows that */
  const newest = s.epochs.findLast(e => finite(e.seconds)), done = newest ? newest.epoch : 0; /* records of earlier ones can be missing */
  const time = kind === 'running' && s.step ? `${duration(s.spent)} so far · about ${duration(s.left)} left` : s.step ? `took ${duration(s.spent)}` : '';
  return tile('Progress', percent, '%' + (time ? ' · ' + time : ''), bar,
    `epochs: ${number(done)} of ${number(s.total_epochs)} · steps: ${number(s.step)} of ${number(s.total)}`);
}

/* Returns the names of the devices that the run has now, or had at its end. */
function devices_now(s) {
  let now = s.start.devices || [];
  for (const r of run.others.slice(run.others.indexOf(last('resume')) + 1))
    if (r.type === 'arrival') now = r.devices;
    else if (is_loss(r)) now = now.filter(d => d !== r.device && !d.startsWith(r.device + ': '));
  return (s.end && s.end.devices) || now;
}

/* Returns the events that changed the number of devices. */
const device_changes = s => s.events.filter(r => is_loss(r) || r.type === 'arrival');

function devices_tile(s) {
  const now = devices_now(s), first = (s.start.devices || []).length;
  const changes = device_changes(s).map(r => event_of(r).text);
  return tile('Devices', number(now.length), changes.length ? `${s.end ? 'at the end' : 'now'}, ${number(first)} at the start` : '',
    now.length > 8 ? now.slice(0, 7).join(', ') + ', …' : now.join(', '),
    ...changes.slice(0, 3), changes.length > 3 && `${changes.length - 3} further changes`);
}

/* Returns the name of the data: that of the user's own file or folder, or that of the public dataset. */
function data_name(s) {
  const given = s.config.data || {}, path = given.x || given.path;
  return OWN_DATA[s.data.name] && typeof path === 'string' ? path.replace(/\/+$/, '').split('/').pop() : s.data.name || 'unknown';
}

function tiles(s) {
  const timed = s.epochs.filter(e => finite(e.seconds) && finite(e.images_per_s)), a = s.start;
  const seconds = timed.reduce((sum, e) => sum + e.seconds, 0);
  const rows = timed.reduce((sum, e) => sum + e.seconds * e.images_per_s, 0), mean = seconds / timed.length;
  return [
    tile('Training', ...mean < 0.1 ? [number(1e3 * mean, 1), 'ms/epoch'] : [number(mean, mean < 10 ? 2 : 1), 's/epoch'], 'without evaluation'),
    tile('Throughput', number(rows / seconds), s.rows + '/s', 'mean over epochs'),
    tile('Data', data_name(s), '', OWN_DATA[s.data.name],
      `${number(s.data.train_rows)} for training, ${number(s.data.test_rows)} for ${s.judged}`),
    devices_tile(s),
    tile('Parameters', number(a.parameters), '',
      `${bytes(a.parameter_bytes)}; ${bytes(a.device_bytes)} on a device`),
    tile('Minibatch', number(a.batch_size), s.rows,
      `${number(a.batch_per_device)} per device${device_changes(s).length ? ' at the start' : ''}, ${number(a.shards)} ${
        a.shards === 1 ? 'shard' : 'shards'}`),
  ];
}

/* ---- charts ----------------------------------------------------------------------------------------------- */

const by_epoch = { lo: NaN, hi: NaN }, by_step = { lo: NaN, hi: NaN };
const charts = {
  accuracy: new Chart({ title: 'Accuracy', x_name: 'epoch', digits: 4, most: 1, view: by_epoch,
    empty: 'The first epoch is not over yet.' }),
  loss: new Chart({ title: 'Loss', x_name: 'step', digits: 4, from_zero: true, view: by_step,
    empty: 'No values were recorded.' }),
  lr: new Chart({ title: 'Learning rate', x_name: 'step', trim: true, from_zero: true, view: by_step,
    empty: 'No values were recorded.' }),
  norm: new Chart({ title: 'Gradient norm', x_name: 'step', trim: true, from_zero: true, view: by_step }),
  rate: new Chart({ title: 'Throughput', x_name: 'step', digits: 0, from_zero: true,
    of_time: true, view: by_step, empty: 'No values were recorded.' }),
};

/* Returns a point for each step record. `of` returns `sum`, `weight`, `lo` and `hi` for a record; the point's y is
 * sum / weight. */
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
  const rate = step_points(r => { /* sum: rows, weight: seconds, so that the mean of several records is rows / seconds */
    const there = r.images_per_s > 0, [lo, hi] = r.rate_range || [r.images_per_s, r.images_per_s];
    const rows = r.rows || r.steps || 1;
    return { sum: there ? rows : 0, weight: there ? rows / r.images_per_s : 0, lo: there ? lo : NaN, hi: there ? hi : NaN };
  });
  const lr = step_points(r => ({ sum: finite(r.lr) ? r.lr : 0, weight: finite(r.lr) ? 1 : 0, lo: NaN, hi: NaN }));
  const norm = step_points(r => ({ sum: finite(r.grad_norm) ? r.grad_norm : 0, weight: finite(r.grad_norm) ? 1 : 0, lo: NaN, hi: NaN }));
  const epochs = (x, y) => s.epochs.filter(e => finite(e[y]) && finite(e[x])).map(e => point(e[x], e[y]));
  const events = s.events.filter(event_of).map(r => ({ x: r.step, ...event_of(r) }));
  const by_epochs = events.map(e => ({ ...e, x: e.x * s.total_epochs / s.total }));
  charts.accuracy.name(capital(s.metric.name));
  charts.accuracy.most = s.metric.rises ? 1 : undefined;
  charts.rate.name('Throughput', s.rows + '/s');
  charts.accuracy.set([
    { name: 'training (mean over the epoch)', colour: 'c2', line: true, dots: true, points: epochs('epoch', s.metric.key === 'test_accuracy' ? 'train_accuracy' : '') },
    { name: s.judged, colour: 'c4', line: true, dots: true, points: epochs('epoch', s.metric.key) }], by_epochs);
  charts.loss.set([
    { name: 'minibatch', ranged: 'minibatches: mean and range', colour: 'c2', line: true, points: loss },
    { name: s.judged, colour: 'c4', dots: true, points: epochs('at', 'test_loss') }], events);
  charts.lr.set([{ name: 'step', colour: 'c2', line: true, points: lr }], events);
  if (norm.some(p => finite(p.y))) { /* only runs with gradient clipping have norms */
    if (!charts.norm.figure.isConnected) charts.lr.figure.after(charts.norm.figure);
    charts.norm.set([{ name: 'before clipping', colour: 'c2', line: true, points: norm }], events);
  } else charts.norm.figure.remove();
  charts.rate.set([
    { name: 'step', ranged: 'steps: mean and range', colour: 'c2', line: true, no_last: true, points: rate },
    { name: 'mean over an epoch', colour: 'c4', line: true, dots: true, no_last: true, points: epochs('at', 'images_per_s') }], events);
}

/* ---- classes ---------------------------------------------------------------------------------------------- */

/* The confusion matrix of the newest evaluation: a row for each true class, a column for each predicted class. The
 * intensity of a cell is the square root of its share of the row, so that a few errors are visible beside many correct
 * predictions. Up to NAMED classes the matrix shows names and counts; with more classes it shows the numbers of
 * some classes. */
const NAMED = 24, CELL = 46, LETTERS = 13, matrix = el('figure', {}), classes = el('figure', {});

/* Returns the sizes of a matrix of n classes that is at most `width` pixels wide. `longest`: length of the longest name.
 * Names have at most `most` letters, and numbers stand for them where a row is too low for letters. */
function matrix_layout(n, longest, width, named = n <= NAMED) {
  const most = Math.min(longest, Math.floor(Math.min(0.32 * width / 6.6, 0.26 * width / 5)));
  const left = (named ? 14 + 6.6 * most : 34) + 20;
  const cell = Math.min(CELL, (width - left - 8) / n), tilt = named && 6.6 * most > cell ? -40 : 0;
  if (named && cell < LETTERS) return matrix_layout(n, longest, width, false);
  return { named, most, left, cell, tilt, below: (tilt ? 14 + 5 * most : 20) + 18, size: cell * n };
}

function matrix_cells(svg, e, name, l) {
  const digits = String(e.confusion.flat().reduce((a, c) => Math.max(a, c))).length, font = Math.min(13, (l.cell - 2) / (0.58 * digits));
  e.confusion.forEach((row, i) => {
    const all = row.reduce((a, b) => a + b, 0), y = 6 + i * l.cell;
    row.forEach((count, k) => {
      if (!count) return;
      const x = l.left + k * l.cell, g = shape('g', { class: i === k ? 'c3' : 'c4' });
      const box = shape('rect', { x, y, width: l.cell, height: l.cell,
        'fill-opacity': (l.named ? 0.06 : 0.2) + 0.8 * Math.sqrt(count / all) });
      box.append(shape('title', {}, `${name(i)}: ${number(count)} of ${number(all)} predicted as ${name(k)}`));
      g.append(box);
      if (l.named && font >= 8.5) g.append(shape('text', { x: x + l.cell / 2, y: y + l.cell / 2 + 0.36 * font,
        'text-anchor': 'middle', style: `font-size: ${font.toFixed(1)}px` }, count));
      svg.append(g);
    });
  });
}

/* Returns a name with at most `most` letters. The middle is left out, because names often differ at their ends. */
const shortened = (text, most) => text.length <= most ? text
  : text.slice(0, Math.ceil((most - 1) / 2)) + '…' + text.slice(-Math.floor((most - 1) / 2));

/* Draws the matrix. Returns whether it shows numbers in place of names. */
function draw_matrix(e, name, judged) {
  const n = e.confusion.length, longest = Math.min(18, Math.max(...e.confusion.map((_, k) => name(k).length)));
  const card = matrix.clientWidth / unit(), room = Math.min(640, (card > 200 ? card : 560) - 34);
  const l = matrix_layout(n, longest, room), { left, size } = l;
  const width = left + size + 8, height = size + l.below + 6, short = k => shortened(name(k), l.most);
  const svg = shape('svg', { viewBox: `0 0 ${width} ${height}`, class: 'matrix', role: 'img', style: `max-width: calc(var(--chart) * ${width / 16}rem)`,
    'aria-label': `Confusion matrix of ${n} classes after epoch ${e.epoch}; the table beside it has the figures of each class.` });
  const every = l.named ? 1 : [5, 10, 20, 50, 100, 200].find(m => m * l.cell >= 40) ?? 500;
  matrix_cells(svg, e, name, l);
  e.confusion.forEach((_, i) => {
    if (i % every) return;
    const middle = (i + 0.5) * l.cell, x = left + middle, foot = size + (l.tilt ? 16 : 20);
    svg.append(shape('text', { x: left - 6, y: 6 + middle + 4, 'text-anchor': 'end' }, l.named ? short(i) : i),
      shape('text', { x, y: foot, 'text-anchor': l.tilt ? 'end' : 'middle', transform: `rotate(${l.tilt} ${x} ${foot})` },
        l.named ? short(i) : i));
  });
  svg.append(shape('rect', { class: 'axis', x: left, y: 6, width: size, height: size }),
    shape('text', { x: left + size / 2, y: height - 4, 'text-anchor': 'middle', class: 'side' }, 'predicted'),
    shape('text', { x: 12, y: 6 + size / 2, 'text-anchor': 'middle', class: 'side',
      transform: `rotate(-90 12 ${6 + size / 2})` }, 'true'));
  matrix.replaceChildren(el('figcaption', {}, 'Confusion matrix', el('small', {}, `${judged} rows, epoch ${e.epoch}`)), svg);
  return !l.named;
}

function draw_classes(s) {
  const e = s.epochs.findLast(r => r.confusion), names = s.data.class_names || [], figures = [matrix, classes];
  figures.forEach(p => { p.style.display = e ? '' : 'none'; });
  if (!e || (draw_classes.drawn === e.confusion && draw_classes.width === matrix.clientWidth)) return;
  Object.assign(draw_classes, { drawn: e.confusion, width: matrix.clientWidth });
  const name = k => names[k] === undefined ? String(k) : names[k];
  const numbered = draw_matrix(e, name, s.judged) && names.length > 0;
  const rows = e.confusion.map((row, k) => {
    const most = row.reduce((a, c, i) => i !== k && c > (row[a] ?? 0) ? i : a, -1);
    return [(numbered ? `${k} ` : '') + name(k), number(row.reduce((a, b) => a + b, 0)), number(e.precision[k], 4), number(e.recall[k], 4),
      most < 0 ? '' : `${name(most)} (${number(row[most])})`];
  });
  classes.replaceChildren(el('figcaption', {}, 'Classes', el('small', {}, `epoch ${e.epoch}`)),
    table(['class', 'rows', 'precision', 'recall', 'most often mistaken for'], rows));
}

/* ---- tables ----------------------------------------------------------------------------------------------- */

const PHASES = [['gather_s', 'gather'], ['forward_s', 'forward'], ['backward_s', 'backward'],
  ['comm_exposed_s', 'all-reduce'], ['wait_s', 'wait'], ['apply_s', 'apply']];

const phase_key = (name, i) => el('span', { class: 'key c' + (i + 1) }, el('i', {}), name);

/* The figure of the parts of a step's time: a bar for each worker, and a table. */
const times = el('figure', {});

function draw_times() {
  const t = run.times, unit = el('small', {}), caption = el('figcaption', {}, 'Where a step’s time goes', unit);
  if (!t || !t.workers.length) return times.replaceChildren(caption, el('p', { class: 'none' }, 'No times were recorded.'));
  const per_step = t.workers.map(w => PHASES.map(([key]) => (w[key] || 0) / t.steps));
  const micro = per_step.flat().every(seconds => seconds < 1e-4), name = micro ? 'µs' : 'ms';
  const rows = per_step.map(r => r.map(seconds => (micro ? 1e6 : 1e3) * seconds));
  unit.textContent = name + ', mean';
  const longest = Math.max(...rows.map(r => r.reduce((a, b) => a + b, 0))) || 1;
  const bar = (r, w) => el('span', { class: 'row' }, ...r.map((time, i) => {
    const part = el('i', { class: 'c' + (i + 1), title: `worker ${w}, ${PHASES[i][1]}: ${number(time, 2)} ${name}` });
    part.style.width = 100 * time / longest + '%';
    return part;
  }).filter((_, i) => r[i] > 0));
  times.replaceChildren(caption,
    el('div', { class: 'stack', 'aria-hidden': 'true' }, ...rows.flatMap((r, w) => [el('span', {}, 'worker ' + w), bar(r, w)])),
    table(['', ...rows.map((_, w) => 'worker ' + w)],
      PHASES.map(([, name], i) => [phase_key(name, i), ...rows.map(r => number(r[i], 2))])));
}

/* Returns a table of the newest step: for each worker the parts of its time, and the number of items in its inbox. */
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
    ...run.metrics.map(m => [m.key, s.judged + ' ' + m.name])];
  const some = all.filter(([k]) => k.endsWith('loss') || s.epochs.some(e => finite(e[k])));
  return table(['epoch', ...some.map(m => m[1]), 'seconds'],
    s.epochs.map(e => [e.epoch, ...some.map(([k]) => figure(e[k])), number(e.seconds, 2)]));
}

const CHECKSUMS = { published: 'that of the published files', differs: 'differs from that of the published files',
  unknown: 'none is published for this data' };

function facts(s) {
  const { device_model, instruction_set, library } = s.start, given = OWN_DATA[s.data.name] && s.config.data && s.config.data.path;
  const list = [['Run directory', s.live.run_dir], ['Host', s.live.host], ['Command', s.live.command], ['Device', device_model],
    ['Instruction set', instruction_set], ['Library', library],
    ['Data from', given && s.data.source && given !== s.data.source ? `${given} (read from ${s.data.source})` : s.data.source || given], ['Checksum', CHECKSUMS[s.data.payload]],
    ['Started', when(s.start.time)], ['Ended', s.end && when(s.end.time)], ['Elapsed time', s.step ? duration(elapsed(s)) : ''],
    ['Checkpoint', s.end && s.end.checkpoint], ['Verification', last('verified') && `${last('verified').result} (${VERIFIED_BY})`]];
  return el('dl', { class: 'facts' }, ...list.filter(f => f[1]).flatMap(([k, v]) => [el('dt', {}, k), el('dd', {}, v)]));
}

/* Returns the seconds since the start of a run in progress. If the run has ended or was resumed, returns the seconds
 * that its steps and evaluations took. */
function elapsed(s) {
  const begun = Date.parse(s.start.time), resumed = s.events.some(r => r.type === 'resume');
  return live && !s.end && !live.gone && !resumed && finite(begun) ? (Date.now() - begun) / 1000 : s.spent;
}

/* The figure of the model's layers, which are in the record of type "program". */
const model = el('figure', {});

function draw_model(s) {
  const program = last('program'), layers = program && program.layers;
  const caption = el('figcaption', {}, 'Model', el('small', {}, [s.start.parameters ? number(s.start.parameters) + ' parameters' : '',
    layers ? `input ${program.input.join(' × ')}` : ''].filter(Boolean).join(', ')));
  if (!layers) return model.replaceChildren(caption, el('p', { class: 'none' }, 'The layers were not recorded.'));
  if (draw_model.drawn === program) return;
  draw_model.drawn = program;
  model.replaceChildren(caption, table(['layer', 'output', 'parameters'],
    layers.map(l => [l.name === l.type ? l.type : `${l.name} ${l.type}`, l.output.join(' × '), l.parameters ? number(l.parameters) : ''])));
}

/* ---- predictions ------------------------------------------------------------------------------------------ */

/* The figure of predictions of evaluated rows. Their record: {"type":"samples","channels":…,"height":…,"width":…,"rows":[…]}; each row has its
 * number, its "file" or the "line" of its table if they are known, the texts "true" and "predicted", "right", and "pixels", bytes in base64, if it is a picture. */
const samples = el('figure', { class: 'samples' });

function picture(r, of) {
  const canvas = el('canvas', { width: of.width, height: of.height, role: 'img', 'aria-label': `row ${r.row}` });
  const bytes = atob(r.pixels), plane = of.width * of.height, to = canvas.getContext('2d'), image = to.createImageData(of.width, of.height);
  for (let i = 0; i < plane; i++)
    for (let c = 0; c < 4; c++)
      image.data[4 * i + c] = c === 3 ? 255 : bytes.charCodeAt(of.channels === 3 ? c * plane + i : i);
  to.putImageData(image, 0, 0);
  return canvas;
}

function sample(r, of) {
  const share = finite(r.probability) ? ` ${Math.round(100 * r.probability)}\u00a0%` : '';
  return el('li', { class: r.right === true ? 'right' : r.right === false ? 'wrong' : '' }, r.pixels ? picture(r, of) : null,
    el('div', {}, el('b', {}, (r.right === true ? '✓ ' : r.right === false ? '✗ ' : '') + r.predicted), share),
    r.right === true ? null : el('div', { class: 'detail' }, 'true: ' + r.true),
    r.file || r.line ? el('div', { class: 'detail', title: r.file || '' }, r.file ? r.file.split('/').pop() : 'line ' + r.line) : null);
}

function draw_samples(s) {
  const of = last('samples');
  samples.style.display = of ? '' : 'none';
  if (!of || draw_samples.drawn === of) return;
  draw_samples.drawn = of;
  samples.replaceChildren(el('figcaption', {}, 'Predictions', el('small', {}, of.text)),
    el('ul', {}, ...of.rows.map(r => sample(r, of))));
}

/* ---- the page --------------------------------------------------------------------------------------------- */

const places = { head: part('header', ''), hash: el('p', { class: 'sub' }), notes: part('div', 'notes'), first: part('section', 'first'),
  tiles: part('section', 'tiles'), workers: part('section', 'workers'), epochs: part('div', ''), facts: part('div', ''),
  config: el('pre', { tabindex: 0 }) };

function render() {
  const s = summary(), config = JSON.stringify(s.config, null, 2);
  places.head.replaceChildren(...heading(s));
  draw_hash(s);
  places.notes.replaceChildren(...notes(s));
  places.first.replaceChildren(metric_tile(s), progress_tile(s));
  places.tiles.replaceChildren(...tiles(s));
  draw_charts(s);
  draw_classes(s);
  draw_times();
  draw_model(s);
  draw_samples(s);
  places.workers.replaceChildren(...newest_workers(s));
  places.epochs.replaceChildren(epoch_table(s));
  places.facts.replaceChildren(facts(s));
  if (places.config.textContent !== config) places.config.textContent = config;
}

/* Requests new records once a second as long as the page is open. It goes on if the server does not answer, because the
 * server may come back with this run or another one. */
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

document.getElementById('main').append(big_link, places.head, places.hash, places.notes, places.first, places.tiles,
  el('section', { class: 'charts' }, ...Object.values(charts).map(c => c.figure), times, model),
  el('p', { class: 'hint', id: 'hint' }, ...hint()),
  el('section', { class: 'charts classes' }, matrix, classes), samples, places.workers, fold('Epochs', places.epochs), fold('Run details', places.facts, true), fold('Config', places.config));
take(records.textContent);
render();
new ResizeObserver(() => {
  Object.values(charts).forEach(c => c.draw());
  draw_classes(summary());
}).observe(document.querySelector('.charts'));
if (live) renew();
