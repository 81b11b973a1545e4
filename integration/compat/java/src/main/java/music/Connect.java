package music;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Connects to a cluster once for each line on stdin, in the protocol version that the driver negotiates, and prints the result, a line each. Argument: host. */
public final class Connect {
  public static void main(String[] args) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    while (lines.readLine() != null) {
      try (CqlSession session = Recorded.connect(args[0], null, DriverConfigLoader.programmaticBuilder().build())) {
        session.execute("SELECT key FROM system.local");
        System.out.println("connected");
      } catch (Exception failed) {
        System.out.println(failed.toString().replace('\n', ' '));
      }
    }
  }
}
