package music.shedlock;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.Row;
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

/**
 * Locks of ShedLock, held by MUSIC proxies. lockAtMostFor is the lease of a lock, which nobody renews but extend; an unlock before lockAtLeastFor leaves the rest of that
 * as its lease. No clock of a client counts. The table has a text as its key, and a lease as long as the longest lockAtMostFor:
 *
 * <pre>CREATE TABLE ks.shedlock (name text PRIMARY KEY) WITH comment = '@critical(lease=24h)'</pre>
 */
public final class MusicLockProvider implements ExtensibleLockProvider {
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
    Row told = ask("LOCK", " NOWAIT LEASE ? TOKEN ?", asked.getName(), lease(asked.getLockAtMostFor()), UUID.randomUUID());
    if (!told.getString("state").equals("HELD")) return Optional.empty();
    return Optional.of(new Lock(asked, told.getLong("lock_ref")));
  }

  private Row ask(String verb, String clauses, Object name, Object... more) {
    List<Object> values = new ArrayList<>(List.of(name));
    values.addAll(List.of(more));
    return session.execute(session.prepare(verb + where + clauses).bind(values.toArray())).one();
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
        ask("UNLOCK", " USING LOCK ?", lockConfiguration.getName(), ref);
      }
    }

    @Override
    protected Optional<SimpleLock> doExtend(LockConfiguration longer) {
      Row told = ask("LOCK", " USING LOCK ? LEASE ?", longer.getName(), ref, lease(longer.getLockAtMostFor()));
      return told.getString("state").equals("HELD") ? Optional.of(new Lock(longer, ref)) : Optional.empty();
    }
  }
}
