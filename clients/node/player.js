'use strict';
// Does what it is told on its standard input, a line each, with the locks of this package: see integration/clients.
const readline = require('readline');
const cassandra = require('cassandra-driver');
const music = require('music-locks');

const UPDATE = 'UPDATE TABLE USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?';
const READ = 'SELECT balance FROM TABLE WHERE branch = ? AND id = ? USING LOCK ?';
const PLAIN = 'UPDATE TABLE SET balance = ? WHERE branch = ? AND id = ?';

class Failed extends Error {}

async function connect(address) {
  const client = new cassandra.Client({
    contactPoints: [address], localDataCenter: 'dc1', protocolOptions: { maxVersion: 4 }, isMetadataSyncEnabled: false,
    socketOptions: { readTimeout: 2000, connectTimeout: 10000 }, pooling: { heartBeatInterval: 0, coreConnectionsPerHost: { 0: 1, 1: 1, 2: 1 } },
    policies: { reconnection: new cassandra.policies.reconnection.ConstantReconnectionPolicy(50) },
  });
  await client.connect();
  return client;
}

function outcome(error) {
  const text = error.message + Object.values(error.innerErrors || {}).map(e => e.message).join();
  if (error instanceof Failed) return 'failed';
  if (error instanceof music.NoProxy) return 'no proxy';
  if (error.name === 'AbortError') return 'cancelled';
  if (error instanceof music.Lost || text.includes('MUSIC_LOST')) return 'lost';
  if (error instanceof music.NotAcquired) return 'not acquired';
  if (text.includes('USING LOCK ?')) return 'no marker';
  const told = [error, ...Object.values(error.innerErrors || {})];
  if (told.some(e => e.code === cassandra.types.responseErrorCodes.unavailableException)) return 'error UNAVAILABLE';
  const word = /MUSIC_[A-Z_]+|UNAVAILABLE|UNAUTHORIZED/.exec(text);
  return word ? 'error ' + word[0] : 'error';
}

class Actor {
  constructor(story, name) {
    Object.assign(this, { story, name, told: [] });
    this.live();
  }

  say(what) { process.stdout.write(`${this.story.id} ${this.name} ${what}\n`); }

  take(words) {
    if (words[0] === 'cancel') this.cancelling.abort();
    else if (this.waiting) this.waiting(words);
    else this.told.push(words);
  }

  // The next command.
  does() {
    if (this.told.length > 0) return this.told.shift();
    return new Promise(resolve => {
      this.waiting = words => { this.waiting = undefined; resolve(words); };
    });
  }

  async live() {
    for (;;) {
      const [verb, ...args] = await this.does();
      try {
        if (verb === 'open') {
          [this.story.client, this.story.table] = [await connect(args[0]), args[1]];
          this.say('open');
        } else if (verb === 'hold' || verb === 'try') {
          await this.section(verb, args);
        } else if (verb === 'once') {
          const ran = await music.once(this.story.client, args[0], args[1], async () => {
            this.say('works');
            if (args.length > 2) await music.tryHold(this.story.client, { table: this.story.table, key: { branch: 'zurich' } }, async () => {});
          });
          this.say(ran ? 'ran' : 'not run');
        } else {
          this.say(await this.under(this.lock, verb, args));
        }
      } catch (error) {
        this.say(outcome(error));
      }
    }
  }

  async section(verb, args) {
    this.cancelling = new AbortController();
    const ask = { table: this.story.table, key: { branch: 'zurich' }, signal: this.cancelling.signal };
    for (const [name, value] of args.map(arg => arg.split('='))) {
      if (name === 'wait' || name === 'lease') ask[name] = Number(value);
      else (name === 'table' || name === 'as' ? ask : ask.key)[name] = value;
    }
    let mine;
    try {
      await (verb === 'hold' ? music.hold : music.tryHold)(this.story.client, ask, async lock => {
        this.lock = mine = lock;
        this.say(`held ${lock.token}${lock.ownerDied ? ' after a death' : ''}`);
        for (;;) {
          const [verb, ...args] = await this.does();
          if (verb === 'release') return;
          if (verb === 'fail') throw new Failed();
          try {
            this.say(await this.under(lock, verb, args));
          } catch (error) {
            this.say(outcome(error));
          }
        }
      });
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      this.say('failed');
    }
    this.say(mine.released ? 'released' : 'left');
  }

  async under(lock, verb, args) {
    if (verb === 'lost') {
      if (!lock.lost.aborted) await new Promise(resolve => lock.lost.addEventListener('abort', resolve));
      return outcome(lock.lost.reason);
    }
    if (verb === 'check') return lock.isLost() ? 'lost' : 'not lost';
    if (args.length > 1) lock = this.story.actors.get(args[1]).lock;
    const text = statement => statement.replace('TABLE', this.story.table);
    const value = Number(args[0]);
    const read = async () => Number((await lock.execute(text(READ), ['zurich', 'x'])).rows[0].balance);
    const write = () => lock.execute(text(verb === 'settle-plain' ? PLAIN : UPDATE), [value, 'zurich', 'x']);
    switch (verb) {
      case 'read': return `reads ${await read()}`;
      case 'settle':
      case 'settle-plain': return await lock.settle(write, async () => await read() === value) ? 'landed' : 'not landed';
      case 'plain': await lock.execute(text(PLAIN), [value, 'zurich', 'x']); break;
      case 'batch': {
        const query = text(UPDATE);
        const queries = [[value, 'zurich', 'x'], [value + 1, 'zurich', 'y']].map(params => ({ query, params: lock.bind(query, params) }));
        await this.story.client.batch(queries, { prepare: true, logged: false });
        break;
      }
      default: await write();
    }
    return 'written';
  }
}

const stories = new Map();
readline.createInterface({ input: process.stdin }).on('line', line => {
  const [id, name, ...words] = line.split(' ');
  if (!stories.has(id)) stories.set(id, { id, actors: new Map() });
  const story = stories.get(id);
  if (!story.actors.has(name)) story.actors.set(name, new Actor(story, name));
  story.actors.get(name).take(words);
}).on('close', () => process.exit());
