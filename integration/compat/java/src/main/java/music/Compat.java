package music;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.DefaultProtocolVersion;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.cql.Statement;
import com.datastax.oss.driver.api.core.data.CqlDuration;
import com.datastax.oss.driver.api.core.data.TupleValue;
import com.datastax.oss.driver.api.core.metadata.Node;
import com.datastax.oss.driver.api.core.metadata.TokenMap;
import com.datastax.oss.driver.api.core.type.DataTypes;
import com.datastax.oss.driver.api.core.type.UserDefinedType;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletionStage;
import java.util.stream.Collectors;

/** Prints what the driver for Java shows of ordinary CQL. Arguments: host, keyspace, version. The output must not depend on the host. */
public final class Compat {
  private final CqlSession session;
  private final String keyspace;

  private Compat(CqlSession session, String keyspace) {
    this.session = session;
    this.keyspace = keyspace;
  }

  static void tell(String name, Object... values) {
    System.out.println(name + " | " + Arrays.stream(values).map(String::valueOf).collect(Collectors.joining(" | ")));
  }

  private ResultSet attempt(String name, Statement<?> statement) {
    try {
      ResultSet result = session.execute(statement);
      boolean applied = result.wasApplied(); // the driver knows it only before the rows are read
      List<String> columns = new ArrayList<>();
      result.getColumnDefinitions().forEach(c -> columns.add(c.getKeyspace() + "." + c.getTable() + "." + c.getName() + " " + c.getType().asCql(true, true)));
      List<String> rows = result.all().stream().map(Row::getFormattedContents).collect(Collectors.toList());
      var info = result.getExecutionInfo();
      tell(name, columns, rows, applied, info.getWarnings(), info.getIncomingPayload().keySet(), info.getErrors().size());
      return result;
    } catch (DriverException e) { // the errors are compared too
      tell(name, told(e));
      return null;
    }
  }

  private ResultSet attempt(String name, String cql, Object... values) {
    return attempt(name, SimpleStatement.newInstance(cql, values));
  }

  /** Returns an error without the address of the node that sent it. */
  private static String told(Exception e) {
    if (e instanceof AllNodesFailedException failed) {
      return failed.getAllErrors().values().stream().flatMap(List::stream).map(x -> x.getClass().getSimpleName()).collect(Collectors.joining(", "));
    }
    return e.getClass().getSimpleName() + ": " + e.getMessage();
  }

  private void prepared(String name, String cql, Object... values) {
    try {
      PreparedStatement statement = session.prepare(cql);
      List<String> variables = new ArrayList<>();
      statement.getVariableDefinitions().forEach(v -> variables.add(v.getName() + " " + v.getType().asCql(true, true)));
      tell("prepare " + name, variables, statement.getPartitionKeyIndices(), statement.getResultSetDefinitions().size());
      attempt(name, statement.bind(values));
    } catch (DriverException e) {
      tell("prepare " + name, told(e));
    }
  }

  private void schema() {
    tell("version", session.getContext().getProtocolVersion());
    for (Node node : session.getMetadata().getNodes().values()) {
      tell("node", node.getCassandraVersion(), node.getDatacenter(), node.getRack(), node.getHostId(), node.getState(), node.getSchemaVersion() != null);
    }
    session.execute("DROP KEYSPACE IF EXISTS " + keyspace);
    session.execute("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    session.execute("USE " + keyspace);
    tell("keyspace", session.getKeyspace());
    for (String ddl : List.of(
        "CREATE TYPE address (street text, number int)",
        "CREATE TABLE people (id int, part int, name text, home frozen<address>, tags set<text>, PRIMARY KEY (id, part)) WITH comment = 'plain'",
        "CREATE TABLE counts (id int PRIMARY KEY, n counter)",
        "CREATE TABLE kinds (id int PRIMARY KEY, a ascii, b bigint, c blob, d boolean, e date, f decimal, g double, h float, i inet, j smallint, "
            + "k time, l timestamp, m timeuuid, n tinyint, o uuid, p varint, q list<int>, r map<text, int>, s frozen<tuple<int, text>>, t duration)",
        "CREATE INDEX by_name ON people (name)")) {
      tell("ddl", session.execute(ddl).getExecutionInfo().isSchemaInAgreement());
    }
    var made = session.getMetadata().getKeyspace(keyspace).orElseThrow();
    tell("schema", made.describeWithChildren(true));
    TokenMap tokens = session.getMetadata().getTokenMap().orElseThrow();
    tell("replicas", tokens.getPartitionerName(), tokens.getTokenRanges().size(), tokens.getReplicas(CqlIdentifier.fromCql(keyspace), ByteBuffer.wrap(new byte[] {0, 0, 0, 1})).size());
  }

  private void statements() {
    attempt("text", "INSERT INTO people (id, part, name) VALUES (1, 1, 'Ümläut')");
    attempt("values", "INSERT INTO people (id, part, name) VALUES (?, ?, ?)", 1, 2, "b");
    attempt("named", SimpleStatement.newInstance("INSERT INTO people (id, part, name) VALUES (:id, :part, :name)", Map.of("id", 1, "name", "c", "part", 3)));
    UserDefinedType address = session.getMetadata().getKeyspace(keyspace).orElseThrow().getUserDefinedType("address").orElseThrow();
    prepared("prepared", "INSERT INTO people (id, part, name, home, tags) VALUES (?, ?, ?, ?, ?)", 2, 1, "d", address.newValue("Weg", 5), Set.of("x"));
    BoundStatement unset = session.prepare("INSERT INTO people (id, part, name, home) VALUES (:id, :part, :name, :home)").boundStatementBuilder()
        .setInt("part", 2).setInt("id", 2).setToNull("home").build();
    attempt("unset, by name", unset);
    prepared("prepared, by name", "SELECT * FROM people WHERE id = :id AND part = :part", 2, 1);
    for (String cql : List.of("SELEC 1", "SELECT * FROM nosuch", "CREATE TABLE people (id int PRIMARY KEY)", "SELECT nosuch FROM people",
        "SELECT * FROM people WHERE tags = {'x'}", "INSERT INTO people (id) VALUES (1)")) {
      attempt(cql, cql);
      prepared(cql, cql);
    }
    attempt("a text for an int", "SELECT name FROM people WHERE id = ?", "one");
    attempt("LWT", "INSERT INTO people (id, part) VALUES (9, 1) IF NOT EXISTS");
    prepared("LWT refused", "INSERT INTO people (id, part) VALUES (?, ?) IF NOT EXISTS", 9, 1);
    prepared("LWT condition", "UPDATE people SET name = ? WHERE id = 9 AND part = 1 IF name = ?", "now", null);
    attempt("serial", SimpleStatement.newInstance("SELECT id FROM people WHERE id = 9").setConsistencyLevel(DefaultConsistencyLevel.SERIAL));
    attempt("stamp", SimpleStatement.newInstance("INSERT INTO people (id, part, name) VALUES (30, 1, 'stamp')").setQueryTimestamp(5));
    attempt("stamped", "SELECT writetime(name) FROM people WHERE id = 30");
    attempt("payload", SimpleStatement.newInstance("SELECT id FROM people WHERE id = 1 LIMIT 1")
        .setCustomPayload(Map.of("key", ByteBuffer.wrap("value".getBytes(StandardCharsets.UTF_8)))));
    tell("trace", session.execute(SimpleStatement.newInstance("SELECT id FROM people WHERE id = 1").setTracing(true)).getExecutionInfo().getTracingId() != null);
  }

  private boolean isVersion5() {
    return session.getContext().getProtocolVersion() == DefaultProtocolVersion.V5;
  }

  private void ofVersion5() {
    if (!isVersion5()) {
      return;
    }
    attempt("keyspace of the request", SimpleStatement.newInstance("SELECT cluster_name FROM local").setKeyspace("system"));
    attempt("now", SimpleStatement.newInstance("INSERT INTO people (id, part, name) VALUES (20, 1, 'short') USING TTL 1000").setNowInSeconds(1_000_000_000));
    attempt("gone by now", "SELECT name FROM people WHERE id = 20");
    attempt("left then", SimpleStatement.newInstance("SELECT ttl(name) FROM people WHERE id = 20").setNowInSeconds(1_000_000_100));
  }

  private void batches() {
    PreparedStatement insert = session.prepare("INSERT INTO people (id, part, name) VALUES (?, ?, ?)");
    for (DefaultBatchType type : List.of(DefaultBatchType.LOGGED, DefaultBatchType.UNLOGGED)) {
      attempt("batch " + type, BatchStatement.newInstance(type, insert.bind(3, 1, "batch"), SimpleStatement.newInstance("DELETE FROM people WHERE id = ? AND part = ?", 3, 7)));
    }
    attempt("counter batch", BatchStatement.newInstance(DefaultBatchType.COUNTER, SimpleStatement.newInstance("UPDATE counts SET n = n + 3 WHERE id = 1"),
        session.prepare("UPDATE counts SET n = n + ? WHERE id = 1").bind(4L)));
    attempt("counter in a logged batch", BatchStatement.newInstance(DefaultBatchType.LOGGED, insert.bind(3, 2, "x"), SimpleStatement.newInstance("UPDATE counts SET n = n + 3 WHERE id = 1")));
    attempt("counted", "SELECT n FROM counts WHERE id = 1");
    attempt("batched", "SELECT id, part, name FROM people WHERE id = 3");
    attempt("warned", BatchStatement.newInstance(DefaultBatchType.UNLOGGED, insert.bind(7, 1, "x".repeat(6000)), insert.bind(8, 1, "y")));
  }

  private void kinds() throws Exception {
    TupleValue tuple = DataTypes.tupleOf(DataTypes.INT, DataTypes.TEXT).newValue(4, "four");
    Object[] values = {1, "a", 9007199254740993L, ByteBuffer.wrap(new byte[] {0, -1}), true, LocalDate.of(2026, 2, 28), new BigDecimal("-1.50"), 1.5, 0.25f,
      InetAddress.getByName("::1"), (short) -3, LocalTime.of(10, 11, 12, 13), Instant.ofEpochMilli(1234567890123L),
      UUID.fromString("13814000-1dd2-11b2-8080-808080808080"), (byte) 7, UUID.fromString("123e4567-e89b-12d3-a456-426614174000"),
      new BigInteger("123456789012345678901234567890"), List.of(3, 1, 2), Map.of("one", 1), tuple, CqlDuration.newInstance(1, 2, 3)};
    String names = "id, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t";
    String markers = names.replaceAll("[a-z]+", "?");
    prepared("kinds", "INSERT INTO kinds (" + names + ") VALUES (" + markers + ")", values);
    values[0] = 2;
    attempt("kinds by type", SimpleStatement.newInstance("INSERT INTO kinds (" + names + ") VALUES (" + markers + ")", values));
    prepared("kinds shown", "SELECT * FROM kinds WHERE id IN ?", List.of(1, 2));
  }

  private void many() throws Exception {
    PreparedStatement insert = session.prepare("INSERT INTO people (id, part, name) VALUES (?, ?, ?)");
    List<CompletionStage<AsyncResultSet>> all = new ArrayList<>();
    for (int i = 0; i < 300; i++) {
      all.add(session.executeAsync(insert.bind(100 + i % 3, i, "n".repeat(i % 50))));
    }
    for (CompletionStage<AsyncResultSet> one : all) {
      one.toCompletableFuture().get();
    }
    PreparedStatement select = session.prepare("SELECT part, name FROM people WHERE id = ?");
    for (int size : new int[] {1, 7, 100, 1000}) {
      int pages = 0;
      List<Integer> parts = new ArrayList<>();
      AsyncResultSet page = session.executeAsync(select.bind(100).setPageSize(size)).toCompletableFuture().get();
      while (true) {
        pages++;
        page.currentPage().forEach(row -> parts.add(row.getInt("part")));
        if (!page.hasMorePages()) {
          break;
        }
        page = page.fetchNextPage().toCompletableFuture().get();
      }
      tell("pages", size, pages, parts);
    }
    ResultSet first = session.execute(select.bind(101).setPageSize(10));
    ByteBuffer state = first.getExecutionInfo().getPagingState();
    tell("further page", session.execute(select.bind(101).setPageSize(10).setPagingState(state)).one().getFormattedContents());
    tell("all pages", session.execute(select.bind(102).setPageSize(9)).all().size());
  }

  private void changes() {
    String columns = isVersion5() ? "*" : "id, part"; // before version 5 the driver goes on reading by the columns of PREPARE
    PreparedStatement select = session.prepare("SELECT " + columns + " FROM people WHERE id = ? LIMIT 1");
    attempt("before", select.bind(1));
    session.execute("ALTER TABLE people ADD later int");
    attempt("after", select.bind(1));
    session.execute("ALTER TABLE people DROP later");
    attempt("after that", select.bind(1));
    session.execute("DROP TABLE counts");
    tell("dropped", session.getMetadata().getKeyspace(keyspace).orElseThrow().getTable("counts"));
  }

  private void retries() {
    session.execute("CREATE KEYSPACE IF NOT EXISTS lonely WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 5}");
    session.execute("CREATE TABLE IF NOT EXISTS lonely.t (k int PRIMARY KEY)");
    SimpleStatement select = SimpleStatement.newInstance("SELECT * FROM lonely.t").setConsistencyLevel(DefaultConsistencyLevel.ALL);
    attempt("unavailable", select);
    attempt("unavailable, idempotent", select.setIdempotent(true));
  }

  public static void main(String[] args) throws Exception {
    DriverConfigLoader config = Recorded.settings(args[2]).withClass(DefaultDriverOption.RETRY_POLICY_CLASS, Retries.class).build();
    try (CqlSession session = Recorded.connect(args[0], null, config)) {
      Compat c = new Compat(session, args[1]);
      c.schema();
      c.statements();
      c.ofVersion5();
      c.batches();
      c.kinds();
      c.many();
      c.changes();
      c.retries();
    }
  }
}
