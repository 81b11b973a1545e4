'use strict';
// Sends a custom payload with statements, and prints the payload of each answer. Arguments: host, keyspace, the lock_ref of branch b.
const cassandra = require('cassandra-driver');

async function main(host, keyspace, ref) {
  const client = new cassandra.Client({ contactPoints: [host], localDataCenter: 'dc1', keyspace });
  await client.connect();
  const where = "WHERE branch = 'b' AND id = 'x'";
  const statements = ['SELECT key FROM system.local', 'SELECT peer FROM system.peers', 'SELECT peer FROM system.peers_v2', "SELECT balance FROM accounts WHERE branch = 'b'"];
  if (ref) {
    statements.push(`UPDATE accounts USING LOCK ${ref} SET balance = 1 ${where}`, `SELECT balance FROM accounts ${where} USING LOCK ${ref}`,
      `UPDATE accounts USING LOCK ${ref} SET balance = 1 ${where} IF balance = 1`, `BEGIN BATCH USING LOCK ${ref} UPDATE accounts SET balance = 1 ${where}; APPLY BATCH`,
      "UPDATE auto SET n = 1 WHERE id = 'x'", "UPDATE auto SET n = 1 WHERE id = 'x' IF n = 1");
  }
  for (const statement of statements) {
    for (const prepare of [false, true]) {
      const result = await client.execute(statement, [], { prepare, customPayload: { tenant: Buffer.from('blue') } });
      console.log([prepare, statement, JSON.stringify(result.info.customPayload)].join(' | '));
    }
  }
  await client.shutdown();
}

main(...process.argv.slice(2)).catch((err) => {
  console.error(err);
  process.exit(1);
});
