'use strict';
// Reserves pieces of stock.left, many at once, and prints how many it has promised. Arguments: host, how, workers, reservations of each
// worker.
const cassandra = require('cassandra-driver');
const music = require('music-locks');

const item = 'lamp';
const [host, how, workers, each] = process.argv.slice(2);
const client = new cassandra.Client({
  contactPoints: [host], localDataCenter: 'dc1', socketOptions: { readTimeout: 30000 },
  queryOptions: { prepare: true, consistency: cassandra.types.consistencies.quorum },
});

async function left() {
  return (await client.execute('SELECT left FROM shop.stock WHERE item = ?', [item])).first().left;
}

const reserve = {
  plain: async () => client.execute('UPDATE shop.stock SET left = ? WHERE item = ?', [await left() - 1, item]),
  if: async () => {
    for (;;) {
      const seen = await left();
      const result = await client.execute('UPDATE shop.stock SET left = ? WHERE item = ? IF left = ?', [seen - 1, item, seen]);
      if (result.wasApplied()) return;
    }
  },
  lock: () => music.hold(client, { table: 'shop.stock', key: { item }, wait: 60000 }, async lock => {
    const seen = (await lock.execute('SELECT left FROM shop.stock WHERE item = ? USING LOCK ?', [item])).first().left;
    await lock.execute('UPDATE shop.stock USING LOCK ? SET left = ? WHERE item = ?', [seen - 1, item]);
  }),
}[how];

async function work() {
  let promised = 0;
  for (let i = 0; i < each; i++) {
    await reserve().then(() => promised++, error => console.error(error.message));
  }
  return promised;
}

async function main() {
  await client.connect();
  const promised = await Promise.all(Array.from({ length: workers }, work));
  console.log(promised.reduce((a, b) => a + b));
  await client.shutdown();
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
