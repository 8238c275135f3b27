// node-postgres: simple and extended protocol in text form, cursors, COPY streams. The server's address is in PGHOST, PGPORT, PGUSER and PGDATABASE.
"use strict";

const assert = require("node:assert/strict");
const { createRequire } = require("node:module");
const { pipeline } = require("node:stream/promises");
const { Readable, Writable } = require("node:stream");

// The packages stand in the cache folder that CLIENTS_NODE names, not beside this file.
const load = createRequire(`${process.env.CLIENTS_NODE}/`);
const { Client, Pool, types } = load("pg");
const Cursor = load("pg-cursor");
const copyStreams = load("pg-copy-streams");

const CLIENT = "node-postgres";
const SECONDS_MAX = 60;
const LARGE = "SELECT value, 'name ' || value AS name FROM generate_series(1, 1000000) t(value)";
const LONG =
  "SELECT count(*) FROM generate_series(1, 10) a(value) CROSS JOIN generate_series(1, 100000000) b(value) WHERE (a.value + b.value) % 7 = 3";

const checks = [];
function check(name, run) {
  checks.push({ name, run });
}

async function connected(options = {}) {
  const client = new Client(options);
  client.on("error", () => {});
  await client.connect();
  return client;
}

async function code(promise) {
  try {
    await promise;
  } catch (error) {
    return error.code ?? String(error);
  }
  return "no error";
}

async function value(client, text, values) {
  const result = await client.query({ text, values, rowMode: "array" });
  return result.rows[0][0];
}

check("connect", async (client) => {
  const result = await client.query("SELECT 1::integer AS one, NULL AS two");
  assert.deepEqual(result.rows, [{ one: 1, two: null }]);
  assert.equal(result.command, "SELECT");
});

check("password", async () => {
  const password = process.env.CLIENTS_PASSWORD ?? "clients' password";
  const client = await connected({ user: "clients", password });
  assert.equal(await value(client, "SELECT current_user"), "clients");
  await client.end();
  assert.equal(await code(connected({ user: "clients", password: "wrong" })), "28P01");
});

const DOCUMENT = { a: [1, null, "x"], b: "{y}" };
const UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
// [type, parameter, what comes back]: node-postgres leaves bigint and numeric as texts, and dates are instants at the local midnight.
const TYPES = [
  ["smallint", -32768, -32768],
  ["integer", 2147483647, 2147483647],
  ["bigint", "9223372036854775807", "9223372036854775807"],
  ["real", 0.5, 0.5],
  ["double precision", 0.1, 0.1],
  ["boolean", true, true],
  ["numeric(20, 4)", "-12345.6789", "-12345.6789"],
  ["text", "grüß \\ 'x'", "grüß \\ 'x'"],
  ["varchar(10)", "ten", "ten"],
  ["char(3)", "abc", "abc"],
  ["json", DOCUMENT, DOCUMENT],
  ["jsonb", DOCUMENT, DOCUMENT],
  ["uuid", UUID, UUID],
  ["bytea", Buffer.from([0, 255, 39]), Buffer.from([0, 255, 39])],
  ["date", "2024-02-29", new Date(2024, 1, 29)],
  ["timestamp", "2024-02-29 01:02:03.456", new Date(2024, 1, 29, 1, 2, 3, 456)],
  ["timestamptz", new Date(Date.UTC(2024, 1, 29, 1, 2, 3, 456)), new Date(Date.UTC(2024, 1, 29, 1, 2, 3, 456))],
  ["integer[]", [1, null, 3], [1, null, 3]],
  ["bigint[]", ["1"], ["1"]],
  ["double precision[]", [0.5], [0.5]],
  ["boolean[]", [true, null, false], [true, null, false]],
  ["text[]", ["a,b", 'c"d', "", null, "{}"], ["a,b", 'c"d', "", null, "{}"]],
  ["uuid[]", [UUID], [UUID]],
  ["varchar(10)[]", ["ten", "a,b", null], ["ten", "a,b", null]],
  ["char(3)[]", ["abc", null], ["abc", null]],
  ["json[]", [DOCUMENT, null], [DOCUMENT, null]],
  ["jsonb[]", [DOCUMENT, null], [DOCUMENT, null]],
  ["vector(3)", "[1,2.5,-3]", "[1,2.5,-3]"],
  ["halfvec(3)", "[1,2.5,-3]", "[1,2.5,-3]"],
];
TYPES.forEach(([type, parameter, expected], number) => {
  check(`type ${type}`, async (client) => {
    assert.deepEqual(await value(client, `SELECT $1::${type}`, [parameter]), expected);
    await client.query(`CREATE TABLE node_type_${number} (id bigint, v ${type})`);
    await client.query(`INSERT INTO node_type_${number} VALUES ($1, $2), (2, $3)`, [1, parameter, null]);
    const { rows } = await client.query(`SELECT v FROM node_type_${number} ORDER BY id`);
    assert.deepEqual(rows, [{ v: expected }, { v: null }]);
  });
});

check("type interval", async (client) => {
  const found = await value(client, "SELECT interval '3 days 04:00:05.5'");
  assert.deepEqual({ ...found }, { days: 3, hours: 4, seconds: 5, milliseconds: 500 });
});

check("type integer[], two dimensions", async (client) => {
  assert.deepEqual(await value(client, "SELECT ARRAY[[1::integer, 2::integer], [3::integer, 4::integer]]"), [[1, 2], [3, 4]]);
});

// A bigint would come back as a text.
check("integer constants are integer", async (client) => {
  assert.deepEqual((await client.query("SELECT 1 AS a, 2 * $1::integer AS b", [3])).rows, [{ a: 1, b: 6 }]);
});

check("binary results", async (client) => {
  const query = { text: "SELECT 1::integer AS a, true AS b, 'x'::text AS c, NULL::bigint AS d, 0.5::double precision AS e", binary: true };
  assert.deepEqual((await client.query(query)).rows, [{ a: 1, b: true, c: "x", d: null, e: 0.5 }]);
});

check("parameters", async (client) => {
  const { rows } = await client.query("SELECT $1::bigint + 1 AS a, $2 AS b, $3::text AS c, $4::boolean AS d", [41, "it's", null, true]);
  assert.deepEqual(rows, [{ a: "42", b: "it's", c: null, d: true }]);
  assert.equal(await value(client, "SELECT count(*) FROM generate_series(1, 9) t(value) WHERE value = ANY($1)", [[1, 2, 30]]), "2");
  const values = await client.query("SELECT value FROM generate_series(1, 9) t(value) WHERE value > $1 ORDER BY value LIMIT $2", [3, 2]);
  assert.equal(values.rowCount, 2);
});

check("prepared statements", async (client) => {
  for (const number of [1, 2, 3]) {
    const { rows } = await client.query({ name: "twice", text: "SELECT $1::integer + $1::integer AS twice", values: [number] });
    assert.deepEqual(rows, [{ twice: 2 * number }]);
  }
  assert.equal(await code(client.query({ name: "wrong", text: "SELECT nothing", values: [] })), "42703");
  assert.deepEqual((await client.query({ name: "twice", text: "SELECT $1::integer + $1::integer AS twice", values: [4] })).rows, [{ twice: 8 }]);
});

check("several statements and queued queries", async (client) => {
  const results = await client.query("SELECT 1::integer AS a; SELECT 2::integer AS b");
  assert.deepEqual(results.map((result) => result.rows), [[{ a: 1 }], [{ b: 2 }]]);
  const numbers = Array.from({ length: 100 }, (_, number) => number);
  const found = await Promise.all(numbers.map((number) => value(client, "SELECT $1::integer", [number])));
  assert.deepEqual(found, numbers);
});

check("batch insert", async (client) => {
  await client.query("CREATE TABLE node_batch (id bigint PRIMARY KEY, name text)");
  const ids = Array.from({ length: 1000 }, (_, id) => id);
  const text = "INSERT INTO node_batch SELECT * FROM unnest($1::bigint[], $2::text[])";
  assert.equal((await client.query(text, [ids, ids.map((id) => `name ${id}`)])).rowCount, 1000);
  const { rows } = await client.query("INSERT INTO node_batch VALUES ($1, $2), ($3, $4) RETURNING id", [2000, "a", 2001, null]);
  assert.deepEqual(rows, [{ id: "2000" }, { id: "2001" }]);
});

check("large result, cursor", async (client) => {
  const cursor = client.query(new Cursor(LARGE, []));
  const before = process.memoryUsage().rss;
  let [count, total, most] = [0, 0, 0];
  for (let rows = await cursor.read(10000); rows.length > 0; rows = await cursor.read(10000)) {
    count += rows.length;
    for (const row of rows) total += Number(row.value);
    most = Math.max(most, process.memoryUsage().rss - before);
  }
  await cursor.close();
  assert.deepEqual([count, total], [1000000, 500000500000]);
  assert.ok(most < 200e6, `the client took ${Math.round(most / 1e6)} MB`);
  assert.equal(await value(client, "SELECT 1::integer"), 1);
});

check("errors", async (client) => {
  await client.query("CREATE TABLE node_errors (id bigint PRIMARY KEY)");
  await client.query("INSERT INTO node_errors VALUES (1)");
  const statements = [
    ["23505", "INSERT INTO node_errors VALUES ($1)", [1]],
    ["42P01", "SELECT * FROM no_such_table", []],
    ["22P02", "INSERT INTO node_errors VALUES ($1)", ["not a number"]],
    ["42601", "SELEC 1", []],
  ];
  for (const [sqlstate, text, values] of statements) assert.equal(await code(client.query(text, values)), sqlstate);
  assert.equal(await value(client, "SELECT 1::integer"), 1);
});

check("cancel", async (client) => {
  const started = Date.now();
  const running = code(client.query(LONG));
  await new Promise((resolve) => setTimeout(resolve, 500));
  // node-postgres has no call for it: a CancelRequest on a connection of its own, as its `cancel` of old made it.
  const { processID, secretKey } = client;
  const socket = require("node:net").connect(Number(process.env.PGPORT), process.env.PGHOST);
  const request = Buffer.alloc(16);
  [16, 80877102, processID].forEach((number, index) => request.writeInt32BE(number, 4 * index));
  request.writeInt32BE(secretKey, 12);
  socket.end(request);
  assert.equal(await running, "57014");
  assert.ok(Date.now() - started < 5000);
  assert.equal(await value(client, "SELECT 1::integer"), 1);
});

check("statement_timeout", async () => {
  const client = await connected({ statement_timeout: 300 });
  assert.equal(await code(client.query(LONG)), "57014");
  await client.end();
});

check("transactions", async (client) => {
  await client.query("CREATE TABLE node_transactions (id bigint)");
  await client.query("BEGIN");
  await client.query("INSERT INTO node_transactions VALUES (1)");
  await client.query("COMMIT");
  await client.query("BEGIN");
  assert.equal(await code(client.query("SELECT * FROM no_such_table")), "42P01");
  assert.equal(await code(client.query("SELECT 1")), "25P02");
  await client.query("ROLLBACK");
  assert.equal(await value(client, "SELECT count(*) FROM node_transactions"), "1");
});

check("pool", async () => {
  const pool = new Pool({ max: 4 });
  const found = await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map((number) => pool.query("SELECT $1::integer AS n", [number])));
  assert.deepEqual(found.map((result) => result.rows[0].n), [1, 2, 3, 4, 5, 6, 7, 8]);
  await pool.end();
});

check("copy", async (client) => {
  await client.query("CREATE TABLE node_copy (id bigint, name text)");
  const lines = Array.from({ length: 10000 }, (_, id) => `${id}\t${id % 3 === 0 ? "\\N" : `name ${id}`}\n`);
  const stream = client.query(copyStreams.from("COPY node_copy FROM STDIN"));
  await pipeline(Readable.from(lines), stream);
  assert.equal(stream.rowCount, 10000);
  let text = "";
  const collect = new Writable({ write: (chunk, _, done) => { text += chunk; done(); } });
  await pipeline(client.query(copyStreams.to("COPY (SELECT * FROM node_copy ORDER BY id LIMIT 2) TO STDOUT WITH (FORMAT csv)")), collect);
  assert.equal(text, "0,\n1,name 1\n");
});

async function outcome(run) {
  const client = await connected();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${SECONDS_MAX} s`)), SECONDS_MAX * 1000);
  });
  try {
    await Promise.race([run(client), late]);
    await client.end();
    return "passed";
  } finally {
    clearTimeout(timer);
    client.connection.stream.destroy();
  }
}

async function main() {
  types.setTypeParser(types.builtins.NUMERIC, (text) => text);
  console.log(`${CLIENT} | version | ${load("pg/package.json").version}`);
  for (const { name, run } of checks) {
    const found = await outcome(run).catch((error) => `FAILED ${String(error.message ?? error).replace(/\s+/g, " ")} [${error.code ?? ""}]`);
    console.log(`${CLIENT} | ${name} | ${found}`);
  }
  process.exit(0);
}

main();
