'use strict';
// Locks of MUSIC proxies over cassandra-driver. docs/clients.md has the rules.
//
//   await music.hold(client, { table: 'bank.accounts', key: { branch: 'zurich' }, wait: 5000, lease: 30000 }, async lock => {
//     await lock.execute('UPDATE bank.accounts USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?', [70, 'zurich', 'x']);
//   });
const { performance } = require('perf_hooks');
const { errors, types } = require('cassandra-driver');

const RENEW = 1 / 3, LOST = 1 / 5, TICK = 1 / 20; // parts of a lease: when it is renewed, what is left when it is told as lost, between two looks
const PACE = 30000; // ms: a longer lease is renewed as often as this one, since others give a lock away some seconds after its proxy has ended
const WAIT = 10000, ASK = 1500, PAUSE = 200, GIVE_UP = 2000; // ms: of a hold, of a LOCK, between two of them, to leave and to give back

class NotAcquired extends Error {}
class Lost extends Error {}
class NoProxy extends Error {}

const { syntaxError, unauthorized, invalid, unavailableException } = types.responseErrorCodes;

// What a node has answered, where the driver tells that all of them failed.
function reason(error) {
  const inner = error instanceof errors.NoHostAvailableError ? Object.values(error.innerErrors || {}) : [];
  return inner.length === 1 ? inner[0] : error;
}
const answered = error => error instanceof errors.ResponseError;
const says = (error, word) => String(error.message).includes(word);
const ended = error => says(error, 'MUSIC_LOST') || says(error, 'MUSIC_NOT_HELD');

// An answer that is so, or values that the driver does not send: to ask again would not help, and nothing was done.
const certain = error => error instanceof NoProxy || error instanceof TypeError ||
  answered(error) && [syntaxError, unauthorized, invalid].includes(error.code) && !says(error, 'MUSIC_UNAVAILABLE');

// Whether an error leaves open if a write under a lock was carried out.
function uncertain(error) {
  error = reason(error);
  if (error instanceof Lost || error instanceof TypeError) return false;
  if (!answered(error)) return true;
  if (error.code === invalid) return says(error, 'MUSIC_LOST') && says(error, 'unknown');
  return ![syntaxError, unauthorized, unavailableException].includes(error.code);
}

const now = () => [performance.now(), Date.now()];
// Milliseconds by the clock that nobody sets, or by the wall clock, which goes on while the machine sleeps.
const elapsed = since => Math.max(...now().map((at, i) => at - since[i]));
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

// A promise that an AbortSignal ends before its time.
function until(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}

// Of a lock: the part of a statement that names it, and its values.
class Key {
  constructor(client, table, columns) {
    const names = Object.keys(columns || {}).sort();
    if (!/^("([^"]|"")+"|\w+)\.("([^"]|"")+"|\w+)$/.test(table) || names.length === 0) {
      throw new TypeError(`${table}: write keyspace.table, and a value for each column of its key`);
    }
    const quoted = names.map(n => /^[a-z][a-z0-9_]*$/.test(n) ? n : `"${n.replace(/"/g, '""')}"`);
    this.client = client;
    this.where = `${table} WHERE ${quoted.map(n => n + ' = ?').join(' AND ')}`;
    this.values = names.map(n => columns[n]);
  }

  // Sends LOCK or UNLOCK and returns the row of its answer.
  async ask(verb, clauses, values, timeout) {
    const options = { prepare: true, ...timeout && { readTimeout: Math.max(10, timeout) } };
    let result;
    try {
      result = await this.client.execute(`${verb} ${this.where}${clauses}`, [...this.values, ...values], options);
    } catch (error) {
      const why = reason(error);
      if (answered(why) && why.code === syntaxError) throw new NoProxy('what answers is Cassandra itself, and no MUSIC proxy', { cause: why });
      throw why;
    }
    const row = result.rows && result.rows.length === 1 && result.rows[0];
    if (!row || row.state === undefined || row.lock_ref === undefined) throw new NoProxy('what answers is no MUSIC proxy');
    return { applied: row['[applied]'], ref: row.lock_ref, state: row.state, holder: row.holder, lease: Number(row.lease_ms), ownerDied: row.owner_died };
  }

  // The LOCK of a reference that waits, or holds: then it begins the lease anew.
  again(ref, wait, timeout) {
    return this.ask('LOCK', ' USING LOCK ? WAIT ?', [ref, Math.floor(wait)], timeout);
  }

  // Gives a reference back; its error is a Lost, or the lock is left to the end of its lease.
  async unlock(ref) {
    for (const begun = now(); ; await sleep(PAUSE)) {
      try {
        const told = await this.ask('UNLOCK', ' USING LOCK ?', [ref], GIVE_UP - elapsed(begun));
        if (told.applied) return;
        throw new Lost(told.state);
      } catch (error) {
        if (ended(error)) throw new Lost(error.message, { cause: error });
        if (error instanceof Lost || certain(error) || elapsed(begun) >= GIVE_UP) throw error;
      }
    }
  }
}

// One hold on its way.
class Asking {
  constructor(key, ask, nowait) {
    Object.assign(this, { key, lease: ask.lease, as: ask.as, signal: ask.signal, nowait, wait: nowait ? GIVE_UP : ask.wait ?? WAIT });
    this.token = types.Uuid.random();
    this.ref = null;
    this.open = false; // the token may have a place that we do not know the reference of
  }

  // The LOCK that comes next; it notes what is known of the reference then.
  async next(wait, signal, timeout) {
    let told;
    if (this.ref !== null) {
      told = await until(this.key.again(this.ref, wait, timeout), signal);
    } else {
      const clauses = [this.nowait ? [' NOWAIT'] : [' WAIT ?', Math.floor(wait)]];
      if (this.lease) clauses.push([' LEASE ?', this.lease]);
      if (this.as) clauses.push([' AS ?', this.as]);
      clauses.push([' TOKEN ?', this.token]);
      this.open = true;
      try {
        told = await until(this.key.ask('LOCK', clauses.map(c => c[0]).join(''), clauses.flatMap(c => c.slice(1)), timeout), signal);
      } catch (error) {
        this.open = !answered(error) && !(error instanceof NoProxy);
        throw error;
      }
      this.open = told.state === 'QUEUED' && told.ref === null;
    }
    this.ref = told.ref ?? this.ref;
    if (told.state === 'LOST') [this.ref, this.token] = [null, types.Uuid.random()];
    return told;
  }

  // Asks until the lock is had. Else nothing is left behind.
  async hold() {
    const start = now();
    try {
      for (;;) {
        const begun = now();
        let told, failed;
        try {
          told = await this.next(Math.max(1, Math.min(ASK, this.wait - elapsed(start))), this.signal);
        } catch (error) {
          if (certain(error) || this.signal && this.signal.aborted) throw error;
          failed = error;
        }
        const late = elapsed(start) >= this.wait;
        if (told && told.state === 'HELD' && elapsed(begun) < told.lease * (1 - LOST)) return new Lock(this.key, begun, told);
        if (failed && late) throw new NotAcquired('the lock was not acquired', { cause: failed });
        if (told && (late || told.state === 'BUSY')) throw new NotAcquired(`it is held by ${told.holder || 'somebody else'}`);
        if (elapsed(begun) < PAUSE) await until(sleep(PAUSE), this.signal);
      }
    } catch (error) {
      await this.leave();
      throw error;
    }
  }

  // Gives up the place in the queue. Where its reference is not known, that is asked for first.
  async leave() {
    const begun = now();
    while (this.open && this.ref === null && elapsed(begun) < GIVE_UP) {
      try {
        await this.next(0, undefined, GIVE_UP);
      } catch (error) {
        if (certain(error)) return;
      }
      if (this.open) await sleep(PAUSE);
    }
    if (this.ref !== null) await this.key.unlock(this.ref).catch(() => {}); // a place of which the proxy does not hear is passed over
  }
}

// A lock that is held: token, ownerDied, and lost, an AbortSignal.
class Lock {
  constructor(key, begun, told) {
    Object.assign(this, { key, begun, lease: told.lease, token: told.ref, ownerDied: told.ownerDied, released: false });
    this.losing = new AbortController();
    this.lost = this.losing.signal;
    this.next = this.pace() * RENEW; // from begun on
    this.timer = setInterval(() => this.look(), this.pace() * TICK);
    this.timer.unref();
  }

  pace() { return Math.min(this.lease, PACE); }

  left() { return this.lease - elapsed(this.begun); }

  isLost() { return this.lost.aborted || this.left() <= 0; }

  lose() { if (!this.lost.aborted && !this.releasing) this.losing.abort(new Lost('the lock is lost')); }

  // One tick.
  look() {
    if (this.left() <= this.lease * LOST) this.lose();
    if (this.lost.aborted) clearInterval(this.timer);
    else if (!this.renewing && elapsed(this.begun) >= this.next) this.renewing = this.renew().finally(() => { this.renewing = undefined; });
  }

  // Begins the lease anew.
  async renew() {
    const begun = now(), limit = this.pace() / 4;
    try {
      const told = await this.key.again(this.token, Math.min(ASK, limit), limit);
      if (told.state === 'HELD') {
        [this.begun, this.lease] = [begun, told.lease];
        this.next = this.pace() * RENEW;
        return;
      }
      if (told.state === 'LOST') this.lose();
    } catch (error) {
      if (ended(error)) this.lose();
    }
    this.next = elapsed(this.begun) + this.pace() * TICK;
  }

  // The values of a statement with the token where its USING LOCK ? is: an array, or an object of names.
  bind(query, params = []) {
    if (this.isLost()) throw new Lost('the lock is lost');
    const bare = query.replace(/'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\$[^]*?\$\$|\/\*[^]*?\*\/|(?:--|\/\/).*/g, s => ' '.repeat(s.length));
    const found = /\bUSING\s+(?:TTL\s+\S+\s+AND\s+)?LOCK\s+\?/i.exec(bare);
    if (!found) throw new TypeError('the statement has no USING LOCK ?');
    if (!Array.isArray(params)) return { ...params, '[lock]': this.token };
    const at = bare.slice(0, found.index + found[0].length - 1).split('?').length - 1;
    return [...params.slice(0, at), this.token, ...params.slice(at)];
  }

  // client.execute of a statement under the lock.
  async execute(query, params, options) {
    return this.key.client.execute(query, this.bind(query, params), { prepare: true, ...options });
  }

  // Calls write; where its fate is unknown, landed, which reads under the lock. Resolves to whether it landed.
  async settle(write, landed) {
    let unknown;
    try {
      await write();
      return true;
    } catch (error) {
      if (!uncertain(error)) throw error;
      unknown = error;
    }
    for (; !this.isLost(); await sleep(PAUSE)) {
      try {
        return await landed();
      } catch (error) {
        if (says(reason(error), 'MUSIC_LOST')) break;
        if (certain(reason(error))) throw error;
      }
    }
    throw new Lost('the lock is lost, and whether this was written is unknown', { cause: unknown });
  }

  // Gives the lock back, once. Rejects with Lost where it was lost before.
  release() {
    clearInterval(this.timer);
    this.releasing = this.releasing || this.key.unlock(this.token).then(() => { this.released = true; }, error => {
      if (error instanceof Lost || this.isLost()) throw error instanceof Lost ? error : new Lost('the lock is lost', { cause: error });
    }); // else it is left to the end of its lease
    return this.releasing;
  }
}

async function section(client, ask, nowait, work) {
  const lock = await new Asking(new Key(client, ask.table, ask.key), ask, nowait).hold();
  let result;
  try {
    result = await work(lock);
  } catch (error) {
    await lock.release().catch(() => {});
    throw error;
  }
  await lock.release();
  return result;
}

// Waits for a lock and resolves to what work(lock) does. ask: table, key, wait and lease in ms, as, and a signal that ends the wait.
const hold = (client, ask, work) => section(client, ask, false, work);

// The same with a lock that nobody holds or waits for; else it rejects with NotAcquired at once.
const tryHold = (client, ask, work) => section(client, ask, true, work);

// Calls work(lock) unless this run of name is done or under way. Resolves to whether it did.
async function once(client, name, run, work) {
  const marked = async lock => {
    const { rows } = await lock.execute('SELECT value FROM music.named WHERE name = ? USING LOCK ?', [name]);
    return rows.length > 0 && rows[0].value === run;
  };
  let begun = false;
  try {
    return await tryHold(client, { table: 'music.named', key: { name } }, async lock => {
      begun = true;
      if (await marked(lock)) return false;
      await work(lock);
      const mark = () => lock.execute('UPDATE music.named USING LOCK ? SET value = ? WHERE name = ?', [run, name]);
      while (!await lock.settle(mark, () => marked(lock)));
      return true;
    });
  } catch (error) {
    if (error instanceof NotAcquired && !error.cause && !begun) return false; // else it is the work's, or no proxy has said that it is under way
    throw error;
  }
}

module.exports = { hold, tryHold, once, uncertain, Lock, Lost, NoProxy, NotAcquired };
