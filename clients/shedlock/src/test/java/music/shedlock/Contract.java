package music.shedlock;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverTimeoutException;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import java.io.PrintWriter;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiFunction;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
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

    @Test
    public void aLostAnswerLeavesNothingHeld() {
      List<Object> asked = new ArrayList<>();
      AtomicInteger lost = new AtomicInteger();
      CqlSession forgetful = losing(asked, lost);
      LockConfiguration day = new LockConfiguration(ClockProvider.now(), "lost", Duration.ofHours(24), Duration.ZERO);
      Optional<SimpleLock> lock = new MusicLockProvider(forgetful, "ks.shedlock").lock(day);
      assertThat(lock).isPresent();
      assertThat(asked).hasSize(2);
      assertThat(asked.get(1)).as("with the same TOKEN").isEqualTo(asked.get(0));
      lost.set(0);
      lock.get().unlock();
      assertThat(asked).hasSize(4);
    }

    // A session of a proxy that grants everything, and whose first answer is lost each time.
    private static CqlSession losing(List<Object> asked, AtomicInteger lost) {
      Row told = fake(Row.class, (name, args) -> name.equals("getString") ? "HELD" : 86_400_000L);
      ResultSet rows = fake(ResultSet.class, (name, args) -> told);
      return fake(CqlSession.class, (name, args) -> {
        if (name.equals("prepare")) {
          return fake(PreparedStatement.class, (bind, values) -> fake(BoundStatement.class, (text, none) -> args[0] + Arrays.toString((Object[]) values[0])));
        }
        asked.add(args[0].toString());
        if (lost.getAndIncrement() == 0) throw new DriverTimeoutException("the answer is lost");
        return rows;
      });
    }

    private static <T> T fake(Class<T> what, BiFunction<String, Object[], Object> does) {
      return what.cast(Proxy.newProxyInstance(what.getClassLoader(), new Class<?>[] {what}, (self, method, args) -> does.apply(method.getName(), args)));
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
