'use strict';
// A program over the object mapper express-cassandra. Arguments: setup or run, host, keyspace.
const assert = require('assert');
const mapper = require('express-cassandra');

const [phase, host, keyspace] = process.argv.slice(2);
const db = mapper.createClient({
  clientOptions: {
    contactPoints: [host], localDataCenter: 'dc1', protocolOptions: { port: 9042 }, keyspace,
    queryOptions: { consistency: mapper.consistencies.quorum }, socketOptions: { readTimeout: 60000 },
  },
  ormOptions: { createKeyspace: false, migration: 'safe' },
});

const Person = db.loadSchema('Person', {
  fields: {
    name: 'text', surname: 'text', age: 'int', created: 'timestamp',
    tags: { type: 'set', typeDef: '<text>' }, notes: { type: 'list', typeDef: '<text>' }, props: { type: 'map', typeDef: '<text, int>' },
  },
  key: ['name'],
});
const Event = db.loadSchema('Event', {
  fields: { stream: 'text', id: 'int', body: 'text', total: { type: 'int', static: true } },
  key: [['stream'], 'id'], clustering_order: { id: 'desc' },
});

const applied = result => result.rows[0]['[applied]'];
const events = async stream => (await Event.findAsync({ stream }, { raw: true })).map(row => `${row.id}=${row.body}`).join(' ');
const person = async name => Person.findOneAsync({ name }, { raw: true });
const event = (stream, id, body) => new Event({ stream, id, body });

const tests = {
  'sync finds nothing to change': async () => {
    await Person.syncDBAsync();
    await Event.syncDBAsync();
  },
  'save and find': async () => {
    await new Person({ name: 'anna', surname: 'a', age: 30, created: new Date(0) }).saveAsync();
    assert.strictEqual((await person('anna')).surname, 'a');
  },
  'change and save': async () => {
    const anna = await Person.findOneAsync({ name: 'anna' });
    anna.age = 31;
    await anna.saveAsync();
    assert.strictEqual((await person('anna')).age, 31);
  },
  'save with if_not_exist': async () => {
    assert.strictEqual(applied(await new Person({ name: 'ben', age: 1 }).saveAsync({ if_not_exist: true })), true);
    assert.strictEqual(applied(await new Person({ name: 'ben', age: 2 }).saveAsync({ if_not_exist: true })), false);
    assert.strictEqual((await person('ben')).age, 1);
  },
  'update': async () => {
    await Person.updateAsync({ name: 'ben' }, { age: 3, surname: 'b' });
    assert.strictEqual((await person('ben')).age, 3);
  },
  'update with conditions': async () => {
    assert.strictEqual(applied(await Person.updateAsync({ name: 'ben' }, { age: 4 }, { conditions: { age: 3 } })), true);
    assert.strictEqual(applied(await Person.updateAsync({ name: 'ben' }, { age: 5 }, { conditions: { age: 3 } })), false);
    assert.strictEqual((await person('ben')).age, 4);
  },
  'update with if_exists': async () => {
    assert.strictEqual(applied(await Person.updateAsync({ name: 'nobody' }, { age: 4 }, { if_exists: true })), false);
    assert.strictEqual(applied(await Person.updateAsync({ name: 'ben' }, { age: 6 }, { if_exists: true })), true);
  },
  'save and update with ttl': async () => {
    await new Person({ name: 'carl', age: 1 }).saveAsync({ ttl: 86400 });
    await Person.updateAsync({ name: 'carl' }, { age: 2 }, { ttl: 3600 });
    const [row] = (await Person.execute_queryAsync('SELECT ttl(age) AS left FROM "Person" WHERE name = ?', ['carl'])).rows;
    assert(row.left > 3000 && row.left <= 3600);
  },
  'save with ttl 1 ends': async () => {
    await new Person({ name: 'dora', age: 1 }).saveAsync({ ttl: 1 });
    const end = Date.now() + 30000;
    while (await person('dora')) assert(Date.now() < end, 'it is still there');
  },
  'collections': async () => {
    await new Person({ name: 'eva', tags: ['x'], notes: ['1'], props: { a: 1 } }).saveAsync();
    await Person.updateAsync({ name: 'eva' }, { tags: { $add: ['y'] }, notes: { $append: ['2'] }, props: { $add: { b: 2 } } });
    await Person.updateAsync({ name: 'eva' }, { tags: { $remove: ['x'] }, notes: { $prepend: ['0'] }, props: { $remove: { a: 1 } } });
    const eva = await person('eva');
    assert.deepStrictEqual([eva.tags, eva.notes, eva.props], [['y'], ['0', '1', '2'], { b: 2 }]);
  },
  'replace in a list and a map': async () => {
    await Person.updateAsync({ name: 'eva' }, { notes: { $replace: [1, 'one'] }, props: { $replace: { c: 3 } } });
    const eva = await person('eva');
    assert.deepStrictEqual([eva.notes, eva.props], [['0', 'one', '2'], { b: 2, c: 3 }]);
  },
  'delete': async () => {
    await Person.deleteAsync({ name: 'eva' });
    assert.strictEqual(await person('eva'), undefined);
    const ben = await Person.findOneAsync({ name: 'ben' });
    await ben.deleteAsync();
    assert.strictEqual(await person('ben'), undefined);
  },
  'static column': async () => {
    await event('s', 1, 'one').saveAsync();
    await Event.updateAsync({ stream: 's' }, { total: 1 });
    assert.strictEqual((await Event.findOneAsync({ stream: 's', id: 1 }, { raw: true })).total, 1);
  },
  'batch of one partition': async () => {
    await db.doBatchAsync([event('b', 1, 'x'), event('b', 2, 'y')].map(e => e.save({ return_query: true })));
    assert.strictEqual(await events('b'), '2=y 1=x');
  },
  'batch of several partitions and tables': async () => {
    await db.doBatchAsync([
      event('c', 1, 'x').save({ return_query: true }), event('d', 1, 'y').save({ return_query: true }),
      new Person({ name: 'frank', age: 9 }).save({ return_query: true }), Event.delete({ stream: 'b', id: 1 }, { return_query: true }),
    ]);
    assert.deepStrictEqual([await events('c'), await events('d'), await events('b'), (await person('frank')).age], ['1=x', '1=y', '2=y', 9]);
  },
  'batch with if_not_exist': async () => {
    const queries = () => [event('e', 1, 'x'), event('e', 2, 'y')].map(e => e.save({ return_query: true, if_not_exist: true }));
    await db.doBatchAsync(queries());
    await db.doBatchAsync(queries());
    assert.strictEqual(await events('e'), '2=y 1=x');
  },
  'delete of a range': async () => {
    await db.doBatchAsync([1, 2, 3, 4].map(id => event('r', id, 'x').save({ return_query: true })));
    await Event.deleteAsync({ stream: 'r', id: { $gt: 1, $lte: 3 } });
    assert.strictEqual(await events('r'), '4=x 1=x');
  },
  'delete and update by $in': async () => {
    await Promise.all(['i', 'j', 'k'].map(stream => event(stream, 1, 'x').saveAsync()));
    await Event.updateAsync({ stream: { $in: ['i', 'j'] }, id: 1 }, { body: 'z' });
    await Event.deleteAsync({ stream: { $in: ['j', 'k'] } });
    assert.deepStrictEqual([await events('i'), await events('j'), await events('k')], ['1=z', '', '']);
  },
  'eight save one name with if_not_exist': async () => {
    const results = await Promise.all(Array.from({ length: 8 }, (_, age) => new Person({ name: 'race', age }).saveAsync({ if_not_exist: true })));
    assert.strictEqual(results.filter(applied).length, 1);
  },
  'streams and pages': async () => {
    await Promise.all(Array.from({ length: 30 }, (_, id) => event('p', id, 'x').saveAsync()));
    let rows = 0;
    await new Promise((resolve, reject) => Event.eachRow({ stream: 'p' }, { fetchSize: 7 }, () => rows++, (error, result) => {
      if (error) return reject(error);
      return result.nextPage ? result.nextPage() : resolve();
    }));
    assert.strictEqual(rows, 30);
  },
  'truncate': async () => {
    await Event.truncateAsync();
    assert.strictEqual(await events('p'), '');
  },
};

const told = line => console.log(JSON.stringify(line));

async function main() {
  if (phase === 'setup') {
    await Person.syncDBAsync();
    await Event.syncDBAsync();
  } else {
    for (const [Test, run] of Object.entries(tests)) {
      await run().then(() => told({ Action: 'pass', Test }), error => told({ Action: 'fail', Test, Output: `${error.message}\n` }));
    }
  }
  await db.closeAsync();
}

main().catch(error => {
  console.error(error);
  process.exit(2);
});
