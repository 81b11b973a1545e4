package music.shedlock;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.servererrors.QueryValidationException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

/**
 * Locks of ShedLock, held by MUSIC proxies. lockAtMostFor is the lease of a lock, which nobody renews but extend; an unlock before lockAtLeastFor leaves the rest of that
 * as its lease. No clock of a client counts. Where the proxy that granted a lock ends, another process may get it before the lease is over: nothing is sent under it
 * that would go on at another proxy. The table has a text as its key, and a lease as long as the longest lockAtMostFor:
 *
 * <pre>CREATE TABLE ks.shedlock (name text PRIMARY KEY) WITH comment = '@critical(lease=24h)'</pre>
 */
public final class MusicLockProvider implements ExtensibleLockProvider {
  private static final long SLACK = 1000; // ms of a lease that may have gone by when its LOCK is answered
  private static final long PAUSE = 200, GIVE_UP = 2_000_000_000; // ms between two statements; ns

  private final CqlSession session;
  private final String where;

  /** The session is one of a proxy: at Cassandra itself LOCK is a syntax error, and no task runs. */
  public MusicLockProvider(CqlSession session, String table) {
    if (!table.matches("\\w+\\.\\w+")) throw new IllegalArgumentException(table + ": write keyspace.table");
    this.session = session;
    this.where = " " + table + " WHERE name = ?";
  }

  @Override
  public Optional<SimpleLock> lock(LockConfiguration asked) {
    long lease = lease(asked.getLockAtMostFor());
    Row told = ask("LOCK", " NOWAIT LEASE ? TOKEN ?", asked.getName(), lease, UUID.randomUUID());
    if (!told.getString("state").equals("HELD")) return Optional.empty();
    Lock lock = new Lock(asked, told.getLong("lock_ref"));
    if (cut(told, lease)) {
      lock.release();
      throw tooLong(asked);
    }
    return Optional.of(lock);
  }

  // Whether the proxy has cut a lease to the table's. The lock would be free, and the task run twice, before lockAtMostFor is over.
  private static boolean cut(Row told, long lease) { return told.getLong("lease_ms") + SLACK < lease; }

  private static LockException tooLong(LockConfiguration asked) {
    return new LockException("lockAtMostFor of " + asked.getName() + " is longer than the lease of the table: say it in its comment, @critical(lease=…)");
  }

  // Asks again for 2 s after the first failure: by a lost answer nobody would have the lock until lockAtMostFor is over. Each of these statements may be
  // carried out twice, and LOCK has the same TOKEN.
  private Row ask(String verb, String clauses, Object name, Object... more) {
    List<Object> values = new ArrayList<>(List.of(name));
    values.addAll(List.of(more));
    for (long failed = 0; ; ) {
      try {
        return session.execute(session.prepare(verb + where + clauses).bind(values.toArray())).one();
      } catch (DriverException why) {
        failed = failed == 0 ? System.nanoTime() : failed;
        boolean certain = why instanceof QueryValidationException && !String.valueOf(why.getMessage()).contains("MUSIC_UNAVAILABLE");
        if (certain || System.nanoTime() - failed >= GIVE_UP || !rest()) throw why;
      }
    }
  }

  // Whether the thread was not interrupted.
  private static boolean rest() {
    try {
      Thread.sleep(PAUSE);
      return true;
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  private static long lease(Duration d) { return Math.max(1, d.toMillis()); }

  private final class Lock extends AbstractSimpleLock {
    private final long ref;

    Lock(LockConfiguration asked, long ref) {
      super(asked);
      this.ref = ref;
    }

    @Override
    protected void doUnlock() {
      Duration left = Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil());
      if (left.toMillis() > 0) {
        ask("LOCK", " USING LOCK ? LEASE ?", lockConfiguration.getName(), ref, lease(left));
      } else {
        release();
      }
    }

    private void release() { ask("UNLOCK", " USING LOCK ?", lockConfiguration.getName(), ref); }

    @Override
    protected Optional<SimpleLock> doExtend(LockConfiguration longer) {
      long lease = lease(longer.getLockAtMostFor());
      Row told = ask("LOCK", " USING LOCK ? LEASE ?", longer.getName(), ref, lease);
      if (!told.getString("state").equals("HELD")) return Optional.empty();
      if (cut(told, lease)) throw tooLong(longer);
      return Optional.of(new Lock(longer, ref));
    }
  }
}
