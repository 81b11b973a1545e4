package music.apps;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.Row;
import java.time.Instant;
import net.javacrumbs.shedlock.provider.cassandra.CassandraLockProvider;
import net.javacrumbs.shedlock.support.StorageBasedLockProvider;
import net.javacrumbs.shedlock.test.support.AbstractStorageBasedLockProviderIntegrationTest;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/** The tests that ShedLock ships for providers, with its provider for Cassandra. Arguments: setup or run, host, keyspace. */
public final class ShedLock {
  private static CqlSession session;

  public static class Contract extends AbstractStorageBasedLockProviderIntegrationTest {
    @Override
    protected StorageBasedLockProvider getLockProvider() { return new CassandraLockProvider(session, "lock", ConsistencyLevel.QUORUM); }

    @Override
    protected void assertUnlocked(String name) { assertThat(held(name)).isFalse(); }

    @Override
    protected void assertLocked(String name) { assertThat(held(name)).isTrue(); }

    private static boolean held(String name) {
      Row row = session.execute("SELECT lockUntil FROM lock WHERE name = ?", name).one();
      return row != null && row.getInstant(0).isAfter(Instant.now());
    }
  }

  private static final class Teller implements TestExecutionListener {
    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
      if (!test.isTest()) return;
      String output = result.getThrowable().map(e -> e + "\n").orElse("");
      Tests.tell(result.getStatus() == TestExecutionResult.Status.SUCCESSFUL ? "pass" : "fail", test.getDisplayName(), output);
    }
  }

  public static void main(String[] args) {
    session = Tests.session(args[1], args[2]);
    if (args[0].equals("setup")) {
      session.execute("CREATE TABLE lock (name text PRIMARY KEY, lockUntil timestamp, lockedAt timestamp, lockedBy text)");
    } else {
      LauncherFactory.create().execute(LauncherDiscoveryRequestBuilder.request().selectors(selectClass(Contract.class)).build(), new Teller());
    }
    System.exit(0);
  }
}
