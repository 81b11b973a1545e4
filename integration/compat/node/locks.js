'use strict';
// Uses locks with the driver for Node.js: text, prepared, bound by name and in a batch. Arguments: host, keyspace.
const assert = require('assert');
const cassandra = require('cassandra-driver');

async function refused(promise, prefix) {
  await assert.rejects(promise, (err) => err instanceof cassandra.errors.ResponseError && err.message.startsWith(prefix));
}

async function section(client, options) {
  const lock = await client.execute('LOCK accounts WHERE branch = :branch', { branch: 'n' }, options);
  assert.strictEqual(lock.wasApplied(), true);
  const row = lock.first();
  assert.strictEqual(row.state, 'HELD');
  const ref = row.lock_ref;
  assert(ref instanceof cassandra.types.Long);
  const typed = (params) => [params, options.prepare ? options : { ...options, hints: params.balance === undefined ? {} : { balance: 'bigint' } }];

  await refused(client.execute("INSERT INTO accounts (branch, id, balance) VALUES ('n', 'x', 1)"), 'MUSIC_UNLOCKED');
  await client.execute('UPDATE accounts USING LOCK :ref SET balance = :balance WHERE branch = :branch AND id = :id', ...typed({ ref, balance: cassandra.types.Long.fromNumber(7), branch: 'n', id: 'x' }));
  const read = await client.execute('SELECT balance FROM accounts WHERE branch = ? AND id = ? USING LOCK ?', ['n', 'x', ref], options);
  assert.strictEqual(read.first().balance.toString(), '7');
  await refused(client.execute('UPDATE accounts USING LOCK :ref SET balance = :balance WHERE branch = :branch AND id = :id', ...typed({ ref: ref.add(1), balance: cassandra.types.Long.fromNumber(8), branch: 'n', id: 'x' })), 'MUSIC_NOT_HELD');
  const unlock = await client.execute('UNLOCK accounts WHERE branch = :branch USING LOCK :ref', { branch: 'n', ref }, options);
  assert.strictEqual(unlock.first().state, 'RELEASED');
}

async function main(host, keyspace) {
  const client = new cassandra.Client({ contactPoints: [host], localDataCenter: 'dc1', keyspace });
  await client.connect();
  await section(client, { prepare: true });
  await section(client, { prepare: false });
  const row = (await client.execute("LOCK accounts WHERE branch = 'd'")).first();
  await refused(client.execute("UPDATE accounts USING LOCK ? SET balance = 1 WHERE branch = 'd' AND id = 'x'", [row.lock_ref.toNumber()]), 'MUSIC_SYNTAX: the value bound to USING LOCK is the double');
  await client.execute("UPDATE accounts USING LOCK ? SET balance = 1 WHERE branch = 'd' AND id = 'x'", [row.lock_ref.toNumber()], { prepare: true });
  await client.shutdown();
  console.log('done');
}

main(...process.argv.slice(2)).catch((err) => {
  console.error(err);
  process.exit(1);
});
