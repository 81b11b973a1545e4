package music.apps;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Map;

/** What the programs have in common: a session, and a line for each test. */
final class Tests {
  private static final ObjectMapper JSON = new ObjectMapper();

  private Tests() {}

  /** What a test does. */
  interface Work {
    void run() throws Exception;
  }

  static CqlSession session(String host, String keyspace) {
    DriverConfigLoader config = DriverConfigLoader.programmaticBuilder()
        .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(60))
        .withDuration(DefaultDriverOption.HEARTBEAT_TIMEOUT, Duration.ofSeconds(60))
        .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, Duration.ofSeconds(60))
        .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(60)).build();
    return CqlSession.builder().addContactPoint(new InetSocketAddress(host, 9042)).withLocalDatacenter("dc1").withKeyspace(keyspace).withConfigLoader(config).build();
  }

  /** Runs a test and tells how it has ended. */
  static void test(String name, Work work) {
    try {
      work.run();
      tell("pass", name, "");
    } catch (Exception | AssertionError e) {
      tell("fail", name, e + "\n");
    }
  }

  static synchronized void tell(String action, String test, String output) {
    try {
      System.out.println(JSON.writeValueAsString(Map.of("Action", action, "Test", test, "Output", output)));
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }
}
