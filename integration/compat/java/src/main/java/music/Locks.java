package music;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BatchableStatement;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.cql.Statement;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.type.DataTypes;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;

/** Uses locks with the driver for Java: text, values, prepared, by name and in batches. Arguments: host, keyspace, version. */
public final class Locks {
  private static final String LOCK = "LOCK accounts WHERE branch = ?";
  private static final String WRITE = "UPDATE accounts USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?";
  private static final String READ = "SELECT balance FROM accounts WHERE branch = ? AND id = ? USING LOCK ?";
  private static final String UNLOCK = "UNLOCK accounts WHERE branch = ? USING LOCK ?";

  private final CqlSession session;

  private Locks(CqlSession session) {
    this.session = session;
  }

  private static void same(Object want, Object got) {
    if (!Objects.equals(want, got)) {
      throw new AssertionError("want " + want + ", got " + got);
    }
  }

  private void refused(String prefix, Statement<?> statement) {
    try {
      session.execute(statement);
    } catch (InvalidQueryException e) {
      if (!e.getMessage().startsWith(prefix)) {
        throw new AssertionError("want " + prefix, e);
      }
      return;
    }
    throw new AssertionError("not refused: " + prefix);
  }

  /** A statement with values, in one of the ways in which a driver sends it. */
  private interface Way {
    Statement<?> of(String cql, Object... values);
  }

  private long granted(Statement<?> statement, String state) {
    ResultSet result = session.execute(statement);
    same(state.equals("HELD") || state.equals("RELEASED"), result.wasApplied());
    Row row = result.one();
    same(state, row.getString("state"));
    same(DataTypes.BIGINT, row.getColumnDefinitions().get("lock_ref").getType());
    return row.getLong("lock_ref");
  }

  private void section(Way way, String branch) {
    long ref = granted(way.of(LOCK, branch), "HELD");
    refused("MUSIC_UNLOCKED", way.of("INSERT INTO accounts (branch, id, balance) VALUES (?, ?, ?)", branch, "x", 1L));
    session.execute(way.of(WRITE, ref, 7L, branch, "x"));
    session.execute(way.of("INSERT INTO accounts (branch, id, balance) VALUES (?, ?, ?) USING LOCK ?", branch, "y", 8L, ref));
    same(7L, session.execute(way.of(READ, branch, "x", ref)).one().getLong("balance"));
    same(7L, session.execute(way.of(READ, branch, "x", ref)).one().getLong("balance")); // in version 5 by the metadata from PREPARE
    refused("MUSIC_NOT_HELD", way.of(WRITE, ref + 1, 9L, branch, "x"));
    same(true, session.execute(way.of("UPDATE accounts USING LOCK ? SET balance = ? WHERE branch = ? AND id = ? IF balance = ?", ref, 10L, branch, "x", 7L)).wasApplied());
    Row now = session.execute(way.of("UPDATE accounts USING LOCK ? SET balance = ? WHERE branch = ? AND id = ? IF balance = ?", ref, 11L, branch, "x", 7L)).one();
    same(false, now.getBoolean("[applied]"));
    same(10L, now.getLong("balance"));
    session.execute(BatchStatement.newInstance(DefaultBatchType.UNLOGGED, part(way, WRITE, ref, 12L, branch, "x"), part(way, WRITE, ref, 13L, branch, "y")));
    int sum = 0;
    for (Row row : session.execute(way.of("SELECT balance FROM accounts WHERE branch = ? USING LOCK ?", branch, ref).setPageSize(1))) {
      sum += row.getLong("balance");
    }
    same(25, sum);
    session.execute(way.of("DELETE FROM accounts USING LOCK ? WHERE branch = ? AND id = ?", ref, branch, "y"));
    same(null, session.execute(way.of(READ, branch, "y", ref)).one());
    granted(way.of("LOCK accounts WHERE branch = ? USING LOCK ? LEASE 20s", branch, ref), "HELD");
    same(ref, granted(way.of(UNLOCK, branch, ref), "RELEASED"));
    refused("MUSIC_LOST", way.of(WRITE, ref, 14L, branch, "x"));
  }

  private static BatchableStatement<?> part(Way way, String cql, Object... values) {
    return (BatchableStatement<?>) way.of(cql, values);
  }

  /** LOCKs that wait are answered while other requests use the same connection, and with a token a LOCK can be repeated. */
  private void queue() throws Exception {
    long first = granted(SimpleStatement.newInstance("SELECT LOCK accounts WHERE branch = ? LEASE 30s", "q"), "HELD");
    UUID token = UUID.randomUUID();
    PreparedStatement wait = session.prepare("LOCK accounts WHERE branch = :b WAIT :w TOKEN :t");
    var second = session.executeAsync(wait.boundStatementBuilder().setString("b", "q").setLong("w", 10_000L).setUuid("t", token).build());
    same(1, session.execute("SELECT key FROM system.local").all().size());
    session.execute(session.prepare(WRITE).bind(first, 1L, "q", "x"));
    granted(SimpleStatement.newInstance(UNLOCK.replaceFirst("\\?", "'q'").replaceFirst("\\?", Long.toString(first))), "RELEASED");
    Row row = second.toCompletableFuture().get().one();
    same("HELD", row.getString("state"));
    same((first >> 23) + 1, row.getLong("lock_ref") >> 23); // without its tag
    Row update = session.execute(SimpleStatement.newInstance("SELECT balance FROM accounts WHERE branch = :b AND id = :i USING LOCK :r",
        Map.of("b", "q", "i", "x", "r", row.getLong("lock_ref")))).one();
    same(1L, update.getLong("balance"));
    session.execute(SimpleStatement.newInstance("UPDATE accounts USING LOCK ? SET balance = 2 WHERE branch = 'q' AND id = 'x'", (int) row.getLong("lock_ref"))); // an int does too
    granted(session.prepare(UNLOCK).bind("q", row.getLong("lock_ref")), "RELEASED");
  }

  public static void main(String[] args) throws Exception {
    try (CqlSession session = Recorded.connect(args[0], args[1], Recorded.settings(args[2]).build())) {
      Locks locks = new Locks(session);
      locks.section((cql, values) -> session.prepare(cql).bind(values), "prepared" + args[2]);
      locks.section(SimpleStatement::newInstance, "values" + args[2]);
      locks.queue();
    }
    System.out.println("done");
  }
}
