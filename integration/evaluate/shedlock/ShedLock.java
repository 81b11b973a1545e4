import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import java.net.InetSocketAddress;
import java.time.Clock;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.cassandra.CassandraLockProvider;

/** Locks of ShedLock's Cassandra provider: ShedLock HOST PORT DATACENTER KEYSPACE LEASE_MS POLL_MS AHEAD_MS. */
class ShedLock extends Sections {
  private final CassandraLockProvider locks;
  private final Duration lease;
  private final long poll;

  ShedLock(CqlSession session, String keyspace, Duration lease, long poll) {
    this.lease = lease;
    this.poll = poll;
    session.execute("CREATE TABLE IF NOT EXISTS " + keyspace
        + ".lock (name text PRIMARY KEY, lockUntil timestamp, lockedAt timestamp, lockedBy text)");
    locks = new CassandraLockProvider(CassandraLockProvider.Configuration.builder()
        .withCqlSession(session).withKeyspace(CqlIdentifier.fromCql(keyspace)).withTableName("lock")
        .withConsistencyLevel(ConsistencyLevel.QUORUM).withSerialConsistencyLevel(ConsistencyLevel.SERIAL).build());
  }

  @Override
  Held enter(String key) throws Exception {
    while (true) {
      Optional<SimpleLock> lock = locks.lock(new LockConfiguration(ClockProvider.now(), key, lease, Duration.ZERO));
      if (lock.isPresent()) return new Locked(lock.get());
      Thread.sleep(poll);
    }
  }

  private class Locked implements Held {
    private SimpleLock lock;

    Locked(SimpleLock lock) { this.lock = lock; }

    @Override
    public byte[] get() { throw new UnsupportedOperationException("values are not here"); }

    @Override
    public void put(byte[] value) { throw new UnsupportedOperationException("values are not here"); }

    @Override
    public void renew() throws Lost {
      lock = lock.extend(lease, Duration.ZERO).orElseThrow(() -> new Lost("it was not extended"));
    }

    @Override
    public void leave() { lock.unlock(); }
  }

  public static void main(String[] args) throws Exception {
    ClockProvider.setClock(Clock.offset(Clock.systemUTC(), Duration.ofMillis(Long.parseLong(args[6]))));
    CqlSession session = CqlSession.builder()
        .addContactPoint(new InetSocketAddress(args[0], Integer.parseInt(args[1]))).withLocalDatacenter(args[2])
        .withConfigLoader(DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(10))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, Duration.ofSeconds(30)).build())
        .build();
    new ShedLock(session, args[3], Duration.ofMillis(Long.parseLong(args[4])), Long.parseLong(args[5])).serve();
  }
}
