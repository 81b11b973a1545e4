package music.shedlock;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.datastax.oss.driver.api.core.CqlSession;
import java.io.PrintWriter;
import java.net.InetSocketAddress;
import java.time.Duration;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.support.LockException;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.Test;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;

/** The tests that ShedLock ships for providers. Arguments: host, table. */
public final class Contract {
  private static CqlSession session;
  private static String table;

  public static class Tests extends AbstractExtensibleLockProviderIntegrationTest {
    @Override
    protected ExtensibleLockProvider getLockProvider() { return new MusicLockProvider(session, table); }

    @Override
    protected void assertUnlocked(String name) { assertThat(held(name)).isFalse(); }

    @Override
    protected void assertLocked(String name) { assertThat(held(name)).isTrue(); }

    @Test
    public void aLockThatTheTableCutsIsRefused() {
      LockConfiguration asked = new LockConfiguration(ClockProvider.now(), "long", Duration.ofHours(2), Duration.ZERO);
      assertThatThrownBy(() -> getLockProvider().lock(asked)).isInstanceOf(LockException.class);
      assertUnlocked("long");
    }

    private static boolean held(String name) {
      return session.execute("LIST LOCKS ON " + table + " WHERE name = '" + name + "'").all().stream()
          .anyMatch(row -> row.getString("state").equals("HELD"));
    }
  }

  public static void main(String[] args) {
    session = CqlSession.builder().addContactPoint(new InetSocketAddress(args[0], 9042)).withLocalDatacenter("dc1").build();
    table = args[1];
    SummaryGeneratingListener heard = new SummaryGeneratingListener();
    LauncherFactory.create().execute(LauncherDiscoveryRequestBuilder.request().selectors(selectClass(Tests.class)).build(), heard);
    heard.getSummary().printFailuresTo(new PrintWriter(System.out), 8);
    System.out.println(heard.getSummary().getTestsSucceededCount() + " passed, " + heard.getSummary().getTestsFailedCount() + " failed");
    System.exit(0);
  }
}
