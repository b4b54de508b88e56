/* SPDX-License-Identifier: MIT */
// perfetto.js FOLDER TRACE QUERY...: imports the trace into Perfetto's trace processor, in its
// WebAssembly form, and prints the rows of each query as a line of JSON.
//
// FOLDER holds engine_bundle.js and trace_processor*.wasm of Perfetto's web page. The bundle is a
// web worker; here it runs in a context of its own that has just what a worker has. Requests and
// replies are protocol buffers (trace_processor.proto), of which a few fields are needed.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [folder, trace, ...queries] = process.argv.slice(2);

// ---- protocol buffers ---------------------------------------------------------------------------

function varint(number) {
  const bytes = [];
  for (; number >= 128; number = Math.floor(number / 128))
    bytes.push((number % 128) + 128);
  return Buffer.from([...bytes, number]);
}

const field = (number, value) => typeof value === 'number' ?
    Buffer.concat([varint(number * 8), varint(value)]) :
    Buffer.concat([varint(number * 8 + 2), varint(value.length), value]);

function takeVarint(bytes, at) {
  let value = 0n;
  let shift = 0n;
  for (;;) {
    const byte = bytes[at++];
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) return [Number(BigInt.asIntN(64, value)), at];
  }
}

// Returns the fields of a message as {number: [value, …]}.
function fields(bytes) {
  const out = {};
  for (let at = 0; at < bytes.length;) {
    let key, value;
    [key, at] = takeVarint(bytes, at);
    const kind = key & 7;
    if (kind === 0) {
      [value, at] = takeVarint(bytes, at);
    } else if (kind === 2) {
      let length;
      [length, at] = takeVarint(bytes, at);
      value = bytes.subarray(at, at + length);
      at += length;
    } else {
      value = bytes.subarray(at, at + (kind === 1 ? 8 : 4));
      at += kind === 1 ? 8 : 4;
    }
    (out[key >> 3] ||= []).push(value);
  }
  return out;
}

function packed(chunks) {
  const out = [];
  for (const bytes of chunks || []) {
    if (typeof bytes === 'number') out.push(bytes);
    for (let at = 0, value; typeof bytes !== 'number' && at < bytes.length; out.push(value))
      [value, at] = takeVarint(bytes, at);
  }
  return out;
}

// Returns the cells of a batch of a query's result.
function cells(batch) {
  const f = fields(batch);
  const integers = packed(f[2]);
  const floats = Buffer.concat((f[3] || []).map((b) => Buffer.from(b)));
  const strings = (f[5] || []).map((b) => Buffer.from(b).toString()).join('').split('\0');
  let float = 0;
  return packed(f[1]).map((kind) => {
    if (kind === 2) return integers.shift();
    if (kind === 3) return floats.readDoubleLE(8 * float++);
    return kind === 4 ? strings.shift() : null;
  });
}

// ---- the worker ---------------------------------------------------------------------------------

const replies = [];
let wake = null;
const port = {
  postMessage(bytes) {
    replies.push(Buffer.from(bytes));
    if (wake) wake();
  },
};
const log = [];
const keep = (text) => log.push(text);
const silent = {log() {}, info() {}, debug() {}, warn: keep, error: keep};
const self = {
  location: {href: 'file:///engine_bundle.js'},
  console: silent, TextDecoder, TextEncoder, performance, URL, setTimeout, clearTimeout,
  crypto: globalThis.crypto,
  importScripts() {},
  WorkerGlobalScope: function() {},
  XMLHttpRequest: class {
    open(method, url) {
      this.response = fs.readFileSync(path.join(folder, path.basename(String(url))));
    }
    send() {}
  },
};
self.self = self;
vm.createContext(self);
vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), self);
self.onmessage({data: port});

// Sends a request and returns the replies of the given field, up to the last one.
let sequence = 0;
async function request(method, body, replyField, isLast) {
  const message = Buffer.concat([field(1, sequence++), field(2, method), ...body]);
  const found = [];
  let read = Buffer.alloc(0);
  port.onmessage({data: vm.runInContext('(b) => new Uint8Array(b)', self)(field(1, message))});
  for (;;) {
    while (replies.length === 0) await new Promise((resolve) => (wake = resolve));
    read = replies.shift();
    for (const reply of fields(read)[1] || []) {
      const f = fields(reply);
      if (f[5]) throw new Error(Buffer.from(f[5][0]).toString());
      for (const part of f[replyField] || []) found.push(fields(part));
      if (isLast(f, found)) return found;
    }
  }
}

async function main() {
  await new Promise((resolve) => setTimeout(resolve)); // until the worker has set itself up
  const data = fs.readFileSync(trace);
  const fail = (f) => {
    if (f[2]) throw new Error(Buffer.from(f[2][0]).toString());
  };
  for (let at = 0; at < data.length; at += 1 << 20) {
    const part = data.subarray(at, at + (1 << 20));
    (await request(1, [field(101, part)], 201, () => true)).forEach(fail);
  }
  await request(2, [], 209, () => true);
  for (const query of queries) {
    const results = await request(3, [field(103, field(1, Buffer.from(query)))], 203, (f, all) =>
      all.length > 0 && (all[all.length - 1][2] ||
                         (all[all.length - 1][3] || []).some((b) => fields(b)[6])));
    results.forEach(fail);
    const columns = results.flatMap((r) => (r[1] || []).map((b) => Buffer.from(b).toString()));
    const values = results.flatMap((r) => (r[3] || []).flatMap(cells));
    const rows = [];
    for (let i = 0; i < values.length; i += columns.length)
      rows.push(Object.fromEntries(columns.map((name, k) => [name, values[i + k]])));
    console.log(JSON.stringify(rows));
  }
}

main().then(() => process.exit(0), (error) => {
  console.error(`${error.stack || error}\n${log.join('\n')}`);
  process.exit(1);
});
