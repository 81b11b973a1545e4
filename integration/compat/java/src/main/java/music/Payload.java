package music;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.cql.Statement;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/** Sends a custom payload with statements, as text and prepared, and prints the payload of each answer. Arguments: host, keyspace, version, statements. */
public final class Payload {
  public static void main(String[] args) {
    try (CqlSession session = Recorded.connect(args[0], args[1], Recorded.settings(args[2]).build())) {
      for (String text : List.of(args).subList(3, args.length)) {
        show(session, text, SimpleStatement.newInstance(text));
        show(session, text, session.prepare(text).bind());
      }
    }
  }

  private static <S extends Statement<S>> void show(CqlSession session, String text, S statement) {
    Map<String, ByteBuffer> sent = Map.of("tenant", ByteBuffer.wrap("blue".getBytes(StandardCharsets.UTF_8)));
    Map<String, ByteBuffer> answer = session.execute(statement.setCustomPayload(sent)).getExecutionInfo().getIncomingPayload();
    ByteBuffer tenant = answer.get("tenant");
    System.out.println(text + " | " + (tenant == null ? "nothing" : StandardCharsets.UTF_8.decode(tenant.duplicate())));
  }
}
