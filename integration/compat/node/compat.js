'use strict';
// Prints what the driver for Node.js shows of ordinary CQL. Arguments: host, keyspace. The output must not depend on the host.
const cassandra = require('cassandra-driver');

const { types } = cassandra;

function tell(name, ...values) {
  console.log([name, ...values.map((v) => JSON.stringify(v))].join(' | '));
}

async function attempt(client, name, cql, params, options) {
  try {
    const result = await client.execute(cql, params, options);
    const columns = (result.columns || []).map((c) => `${c.name} ${c.type.code}`);
    tell(name, columns, result.rows, result.info.warnings, result.info.customPayload, result.wasApplied());
    return result;
  } catch (err) { // the errors are compared too
    tell(name, err.name, err.code, err.message);
    return null;
  }
}

async function schema(client, keyspace) {
  tell('hosts', client.hosts.length, client.hosts.values().map((h) => [h.cassandraVersion, h.datacenter, h.rack, String(h.hostId), h.isUp()]));
  await client.execute(`DROP KEYSPACE IF EXISTS ${keyspace}`);
  await client.execute(`CREATE KEYSPACE ${keyspace} WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`);
  await client.execute(`USE ${keyspace}`);
  await client.execute('CREATE TYPE address (street text, number int)');
  await client.execute("CREATE TABLE people (id int, part int, name text, home frozen<address>, tags set<text>, PRIMARY KEY (id, part)) WITH comment = 'plain'");
  await client.execute('CREATE TABLE counts (id int PRIMARY KEY, n counter)');
  await client.execute('CREATE TABLE kinds (id int PRIMARY KEY, a ascii, b bigint, c blob, d boolean, e date, f decimal, g double, h float, i inet, '
    + 'j smallint, k time, l timestamp, m timeuuid, n tinyint, o uuid, p varint, q list<int>, r map<text, int>, s frozen<tuple<int, text>>, t duration)');
  const table = await client.metadata.getTable(keyspace, 'people');
  tell('table', table.columns.map((c) => [c.name, c.type.code]), table.partitionKeys.map((c) => c.name), table.clusteringKeys.map((c) => c.name), table.comment);
  tell('type', (await client.metadata.getUdt(keyspace, 'address')).fields.map((f) => [f.name, f.type.code]));
  tell('replicas', (client.getReplicas(keyspace, Buffer.from([0, 0, 0, 1])) || []).length);
}

async function statements(client) {
  await attempt(client, 'text', "INSERT INTO people (id, part, name) VALUES (1, 1, 'Ümläut')");
  await attempt(client, 'values', 'INSERT INTO people (id, part, name) VALUES (?, ?, ?)', [1, 2, 'b'], { hints: ['int', 'int', 'text'] });
  await attempt(client, 'named', 'INSERT INTO people (id, part, name) VALUES (:id, :part, :name)', { id: 1, part: 3, name: 'c' }, { hints: { id: 'int', part: 'int', name: 'text' } });
  await attempt(client, 'prepared', 'INSERT INTO people (id, part, name, home, tags) VALUES (?, ?, ?, ?, ?)', [2, 1, 'd', { street: 'Weg', number: 5 }, ['x', 'y']], { prepare: true });
  await attempt(client, 'prepared, named', 'SELECT * FROM people WHERE id = :id AND part = :part', { part: 1, id: 2 }, { prepare: true });
  await attempt(client, 'unset', 'INSERT INTO people (id, part, name, home) VALUES (?, ?, ?, ?)', [2, 2, types.unset, null], { prepare: true });
  await attempt(client, 'a double for an int', 'SELECT name FROM people WHERE id = ?', [1]);
  for (const cql of ['SELEC 1', 'SELECT * FROM nosuch', 'CREATE TABLE people (id int PRIMARY KEY)', 'SELECT nosuch FROM people']) {
    await attempt(client, cql, cql);
    await attempt(client, `prepared ${cql}`, cql, [], { prepare: true });
  }
  await attempt(client, 'LWT', 'INSERT INTO people (id, part) VALUES (9, 1) IF NOT EXISTS');
  await attempt(client, 'LWT refused', 'INSERT INTO people (id, part) VALUES (?, ?) IF NOT EXISTS', [9, 1], { prepare: true });
  await attempt(client, 'serial', 'SELECT id FROM people WHERE id = 9', [], { consistency: types.consistencies.serial });
  await attempt(client, 'stamp', 'UPDATE people SET name = ? WHERE id = 9 AND part = 1', ['stamp'], { prepare: true, timestamp: types.Long.fromNumber(5) });
  await attempt(client, 'stamped', 'SELECT writetime(name) FROM people WHERE id = 9 AND part = 1');
  await attempt(client, 'payload', 'SELECT id FROM people WHERE id = 1 LIMIT 1', [], { customPayload: { key: Buffer.from('value') } });
  const traced = await client.execute('SELECT id FROM people WHERE id = 1', [], { traceQuery: true });
  tell('trace', traced.info.traceId !== null && traced.info.traceId !== undefined);
}

async function batches(client) {
  const one = [{ query: 'INSERT INTO people (id, part, name) VALUES (?, ?, ?)', params: [3, 1, 'batch'] }, { query: 'DELETE FROM people WHERE id = ? AND part = ?', params: [3, 7] }];
  for (const options of [{ prepare: true }, { prepare: true, logged: false }, { prepare: false, hints: [['int', 'int', 'text'], ['int', 'int']] }]) {
    try {
      tell('batch', options, (await client.batch(one, options)).rows);
    } catch (err) {
      tell('batch', options, err.name, err.code, err.message);
    }
  }
  await client.batch([{ query: 'UPDATE counts SET n = n + ? WHERE id = 1', params: [3] }], { prepare: true, counter: true });
  await attempt(client, 'counted', 'SELECT n FROM counts WHERE id = 1');
  await attempt(client, 'batched', 'SELECT id, part, name FROM people WHERE id = 3');
}

async function kinds(client) {
  const values = [1, 'a', types.Long.fromString('9007199254740993'), Buffer.from('00ff', 'hex'), true, types.LocalDate.fromString('2026-02-28'),
    types.BigDecimal.fromString('-1.50'), 1.5, 0.25, types.InetAddress.fromString('::1'), -3, types.LocalTime.fromString('10:11:12.000000013'),
    new Date(1234567890123), types.TimeUuid.fromString('13814000-1dd2-11b2-8080-808080808080'), 7, types.Uuid.fromString('123e4567-e89b-12d3-a456-426614174000'),
    types.Integer.fromString('123456789012345678901234567890'), [3, 1, 2], { one: 1, two: 2 }, new types.Tuple(4, 'four'), types.Duration.fromString('1mo2d3ns')];
  await client.execute(`INSERT INTO kinds (id, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t) VALUES (${values.map(() => '?').join(', ')})`, values, { prepare: true });
  const result = await attempt(client, 'kinds', 'SELECT * FROM kinds WHERE id = ?', [1], { prepare: true });
  tell('shown', result.first().values().map(String));
}

async function many(client) {
  const all = [];
  for (let i = 0; i < 60; i++) {
    all.push(client.execute('INSERT INTO people (id, part, name) VALUES (?, ?, ?)', [100 + i % 3, i, 'n'.repeat(i)], { prepare: true }));
  }
  await Promise.all(all);
  tell('concurrent', (await cassandra.concurrent.executeConcurrent(client, 'SELECT name FROM people WHERE id = ? AND part = ?',
    Array.from({ length: 30 }, (_, i) => [100 + i % 3, i]), { collectResults: true })).resultItems.map((r) => r.first().name.length));
  for (const fetchSize of [1, 7, 1000]) {
    const parts = [];
    let state = null;
    let pages = 0;
    do {
      const page = await client.execute('SELECT part FROM people WHERE id = 100', [], { prepare: true, fetchSize, pageState: state });
      parts.push(...page.rows.map((r) => r.part));
      state = page.pageState;
      pages += 1;
    } while (state);
    tell('pages', fetchSize, pages, parts);
  }
  await client.batch([{ query: `INSERT INTO people (id, part, name) VALUES (7, 1, '${'x'.repeat(6000)}')` }, { query: "INSERT INTO people (id, part, name) VALUES (8, 1, 'y')" }], { logged: false })
    .then((result) => tell('warnings', result.info.warnings));
}

async function main(host, keyspace) {
  const client = new cassandra.Client({ contactPoints: [host], localDataCenter: 'dc1' });
  await client.connect();
  await schema(client, keyspace);
  await statements(client);
  await batches(client);
  await kinds(client);
  await many(client);
  await client.shutdown();
}

main(...process.argv.slice(2)).catch((err) => {
  console.error(err);
  process.exit(1);
});
