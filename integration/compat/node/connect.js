'use strict';
// Connects to a cluster once for each line on stdin, and prints the result, a line each. Argument: host.
const readline = require('readline');
const cassandra = require('cassandra-driver');

async function main(host) {
  for await (const _ of readline.createInterface({ input: process.stdin })) {
    const client = new cassandra.Client({ contactPoints: [host], localDataCenter: 'dc1', socketOptions: { connectTimeout: 3000 } });
    try {
      await client.connect();
      await client.execute('SELECT key FROM system.local');
      const version = client.controlConnection.protocolVersion;
      console.log(version === 4 ? 'connected' : `connected in version ${version}`);
    } catch (err) {
      console.log(`${err.name} ${err.message} ${JSON.stringify(Object.values(err.innerErrors || {}).map((e) => e.message))}`.replace(/\n/g, ' '));
    }
    await client.shutdown();
  }
}

main(...process.argv.slice(2));
