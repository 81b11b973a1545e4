package music;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.metadata.Node;

/** Prints which node, by its host id, answers for each of a number of keys. Arguments: host, nodes to wait for, keys. */
public final class Ring {
  public static void main(String[] args) throws Exception {
    try (CqlSession session = Recorded.connect(args[0], "spread", Recorded.settings("V5").build())) {
      int nodes = Integer.parseInt(args[1]);
      long deadline = System.nanoTime() + 60_000_000_000L;
      while (session.getMetadata().getNodes().values().stream().filter(n -> n.getOpenConnections() > 0).count() < nodes && System.nanoTime() < deadline) {
        Thread.sleep(50);
      }
      for (Node node : session.getMetadata().getNodes().values()) {
        System.out.println("host " + node.getEndPoint().resolve().toString().replaceFirst(".*/", ""));
      }
      PreparedStatement select = session.prepare("SELECT v FROM t WHERE k = ?");
      for (int key = 0; key < Integer.parseInt(args[2]); key++) {
        ResultSet result = session.execute(select.bind(key));
        System.out.println("key " + key + " " + result.getExecutionInfo().getCoordinator().getHostId());
      }
    }
  }
}
