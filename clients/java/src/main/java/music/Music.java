package music;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.ColumnDefinitions;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.servererrors.CoordinatorException;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.servererrors.SyntaxError;
import com.datastax.oss.driver.api.core.servererrors.UnauthorizedException;
import com.datastax.oss.driver.api.core.servererrors.UnavailableException;
import com.datastax.oss.driver.api.core.type.codec.CodecNotFoundException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * Locks of MUSIC proxies over the Java driver 4. docs/clients.md has the rules.
 *
 * <pre>
 * try (Music.Lock lock = Music.hold(session, new Music.Ask("bank.accounts").key("branch", "zurich").wait(Duration.ofSeconds(5)))) {
 *   session.execute(lock.bind(update, 70L, "zurich", "x")); // UPDATE bank.accounts USING LOCK ? SET …
 * }
 * </pre>
 */
public final class Music {
  // Parts of a lease: when it is renewed, what is left when it is told as lost, between two looks.
  private static final long RENEW = 3, LOST = 5, TICK = 20;
  // Milliseconds: a longer lease is renewed as often as this one, since others give a lock away some seconds after its proxy has ended.
  private static final long PACE = 30_000;
  // Milliseconds: of a hold, of a LOCK, between two of them, to leave and to give back.
  private static final long WAIT = 10_000, ASK = 1_500, PAUSE = 200, GIVE_UP = 2_000;

  /** The lock was not acquired: somebody else has it. */
  public static class NotAcquired extends RuntimeException {
    NotAcquired(String text, Throwable cause) { super(text, cause); }
  }

  /** The lock is lost: nothing more succeeds under it. */
  public static class Lost extends RuntimeException {
    Lost(String text, Throwable cause) { super(text, cause); }
  }

  /** What answers is no MUSIC proxy: connect to a proxy, not to Cassandra itself. */
  public static class NoProxy extends RuntimeException {
    NoProxy(Throwable cause) { super("what answers is no MUSIC proxy: connect to a proxy, not to Cassandra itself", cause); }
  }

  /** Which lock, and how it is asked for. */
  public static final class Ask {
    private final String table;
    private final Map<String, Object> key = new TreeMap<>();
    private long wait = WAIT, lease;
    private String as;

    public Ask(String table) { this.table = table; }

    public Ask key(String column, Object value) { key.put(column, value); return this; }

    /** At most so long; without it 10 s. */
    public Ask wait(Duration most) { wait = most.toMillis(); return this; }

    /** Silence after which it is lost; without it the table's. */
    public Ask lease(Duration silence) { lease = silence.toMillis(); return this; }

    /** Who asks, for people. */
    public Ask as(String who) { as = who; return this; }
  }

  /** What is done under a lock. */
  public interface Work {
    void with(Lock lock) throws Exception;
  }

  /** Waits for a lock. A NotAcquired where somebody else has it then; a thread that is interrupted gives its place back. */
  public static Lock hold(CqlSession session, Ask ask) throws InterruptedException { return new Asking(session, ask, false).hold(); }

  /** Takes a lock that nobody holds or waits for; else NotAcquired at once. */
  public static Lock tryHold(CqlSession session, Ask ask) throws InterruptedException { return new Asking(session, ask, true).hold(); }

  /** Works unless this run of name is done or under way, and returns whether it did. It is done when work has ended without an exception. */
  public static boolean once(CqlSession session, String name, String run, Work work) throws Exception {
    Lock taken;
    try {
      taken = tryHold(session, new Ask("music.named").key("name", name));
    } catch (NotAcquired busy) {
      if (busy.getCause() != null) throw busy; // no proxy has said that it is under way
      return false;
    }
    try (Lock lock = taken) {
      Callable<Boolean> marked = () -> {
        Row row = session.execute(lock.bind(session.prepare("SELECT value FROM music.named WHERE name = ? USING LOCK ?"), name)).one();
        return row != null && run.equals(row.getString(0));
      };
      if (marked.call()) return false;
      work.with(lock);
      PreparedStatement mark = session.prepare("UPDATE music.named USING LOCK ? SET value = ? WHERE name = ?");
      while (!lock.settle(() -> session.execute(lock.bind(mark, run, name)), marked)) { }
      return true;
    }
  }

  /** Whether an error leaves open if a write under a lock was carried out. */
  public static boolean uncertain(Throwable error) {
    Throwable why = reason(error);
    if (why instanceof InvalidQueryException) return says(why, "MUSIC_LOST") && says(why, "unknown");
    return !(why instanceof UnavailableException || why instanceof UnauthorizedException || why instanceof SyntaxError
        || why instanceof Lost || why instanceof NoProxy || unsent(why));
  }

  // Values that the driver does not send.
  private static boolean unsent(Throwable why) { return why instanceof IllegalArgumentException || why instanceof CodecNotFoundException; }

  // What a node has answered, where the driver tells that all of them failed.
  private static Throwable reason(Throwable error) {
    if (error instanceof ExecutionException || error instanceof CompletionException) return reason(error.getCause());
    if (error instanceof AllNodesFailedException) {
      Collection<List<Throwable>> all = ((AllNodesFailedException) error).getAllErrors().values();
      if (all.size() == 1) return reason(all.iterator().next().get(0));
    }
    return error instanceof SyntaxError && !says(error, "MUSIC_") ? new NoProxy(error) : error;
  }

  private static boolean says(Throwable error, String word) { return String.valueOf(error.getMessage()).contains(word); }

  private static boolean ended(Throwable why) { return says(why, "MUSIC_LOST") || says(why, "MUSIC_NOT_HELD"); }

  // An answer that is so: to ask again would not help, and nothing was done.
  private static boolean certain(Throwable why) {
    boolean closed = why instanceof IllegalStateException && why.getCause() == null; // the session; what get makes has a cause
    return why instanceof NoProxy || unsent(why) || closed || (why instanceof InvalidQueryException || why instanceof UnauthorizedException) && !says(why, "MUSIC_UNAVAILABLE");
  }

  // A moment, by the clock that nobody sets and by the wall clock, which goes on while the machine sleeps.
  private static final class Moment {
    private final long nanos = System.nanoTime(), wall = System.currentTimeMillis();

    long elapsed() { return Math.max((System.nanoTime() - nanos) / 1_000_000, System.currentTimeMillis() - wall); }
  }

  // The row that LOCK and UNLOCK answer.
  private static final class Answer {
    final boolean applied, ownerDied;
    final Long ref;
    final String state, holder;
    final long lease;

    Answer(AsyncResultSet rows) {
      Row row = rows.one();
      if (row == null || row.getColumnDefinitions().size() != 7) throw new NoProxy(null);
      applied = row.getBoolean(0);
      ref = row.isNull(1) ? null : Long.valueOf(row.getLong(1));
      state = row.getString(2);
      holder = row.getString(4);
      lease = row.getLong(5);
      ownerDied = row.getBoolean(6);
    }
  }

  // Of a lock: the part of a statement that names it, and its values.
  private static final class Key {
    private final CqlSession session;
    private final String where;
    private final List<Object> values;

    Key(CqlSession session, Ask ask) {
      if (!ask.table.matches("(\"([^\"]|\"\")+\"|\\w+)\\.(\"([^\"]|\"\")+\"|\\w+)") || ask.key.isEmpty()) {
        throw new IllegalArgumentException(ask.table + ": write keyspace.table, and a value for each column of its key");
      }
      this.session = session;
      where = ask.table + " WHERE " + ask.key.keySet().stream()
          .map(n -> (n.matches("[a-z][a-z0-9_]*") ? n : '"' + n.replace("\"", "\"\"") + '"') + " = ?").collect(Collectors.joining(" AND "));
      values = new ArrayList<>(ask.key.values());
    }

    // Sends LOCK or UNLOCK.
    CompletionStage<Answer> ask(long timeout, String verb, String clauses, Object... more) {
      List<Object> all = new ArrayList<>(values);
      all.addAll(List.of(more));
      return session.prepareAsync(verb + " " + where + clauses).thenCompose(prepared -> {
        BoundStatement bound = prepared.bind(all.toArray());
        return session.executeAsync(timeout > 0 ? bound.setTimeout(Duration.ofMillis(timeout)) : bound);
      }).thenApply(Answer::new);
    }

    // The LOCK of a reference that waits, or holds: then it begins the lease anew.
    CompletionStage<Answer> again(long timeout, long ref, long wait) { return ask(timeout, "LOCK", " USING LOCK ? WAIT ?", ref, wait); }

    // Gives a reference back; its error is a Lost, or the lock is left to the end of its lease.
    void unlock(long ref) throws InterruptedException {
      for (Moment begun = new Moment(); ; Thread.sleep(PAUSE)) {
        try {
          Answer told = get(ask(Math.max(10, GIVE_UP - begun.elapsed()), "UNLOCK", " USING LOCK ?", ref));
          if (told.applied) return;
          throw new Lost("the lock is lost", null);
        } catch (RuntimeException why) {
          if (ended(why)) throw new Lost("the lock is lost", why);
          if (why instanceof Lost || certain(why) || begun.elapsed() >= GIVE_UP) throw why;
        }
      }
    }
  }

  // Waits for an answer.
  private static <T> T get(CompletionStage<T> stage) throws InterruptedException {
    try {
      return stage.toCompletableFuture().get();
    } catch (ExecutionException failed) {
      Throwable why = reason(failed);
      throw why instanceof RuntimeException ? (RuntimeException) why : new IllegalStateException(why);
    }
  }

  // One hold on its way.
  private static final class Asking {
    private final Key key;
    private final Ask ask;
    private final boolean nowait;
    private UUID token = UUID.randomUUID();
    private Long ref;
    private boolean open; // the token may have a place that we do not know the reference of

    Asking(CqlSession session, Ask ask, boolean nowait) {
      this.key = new Key(session, ask);
      this.ask = ask;
      this.nowait = nowait;
    }

    // The LOCK that comes next; it notes what is known of the reference then.
    private Answer next(long wait, long timeout) throws InterruptedException {
      Answer told;
      if (ref != null) {
        told = get(key.again(timeout, ref, wait));
      } else {
        StringBuilder clauses = new StringBuilder(nowait ? " NOWAIT" : " WAIT ?");
        List<Object> values = new ArrayList<>();
        if (!nowait) values.add(wait);
        if (ask.lease > 0) { clauses.append(" LEASE ?"); values.add(ask.lease); }
        if (ask.as != null) { clauses.append(" AS ?"); values.add(ask.as); }
        clauses.append(" TOKEN ?");
        values.add(token);
        open = true;
        try {
          told = get(key.ask(timeout, "LOCK", clauses.toString(), values.toArray()));
        } catch (RuntimeException why) {
          open = !(why instanceof CoordinatorException || why instanceof NoProxy);
          throw why;
        }
        open = told.state.equals("QUEUED") && told.ref == null;
      }
      if (told.ref != null) ref = told.ref;
      if (told.state.equals("LOST")) { ref = null; token = UUID.randomUUID(); }
      return told;
    }

    // Asks until the lock is had. Else nothing is left behind.
    Lock hold() throws InterruptedException {
      try {
        return asked(nowait ? GIVE_UP : ask.wait);
      } catch (RuntimeException | InterruptedException why) {
        leave();
        throw why;
      }
    }

    private Lock asked(long most) throws InterruptedException {
      for (Moment start = new Moment(); ; ) {
        Moment begun = new Moment();
        Answer told = null;
        RuntimeException failed = null;
        try {
          told = next(Math.max(1, Math.min(ASK, most - start.elapsed())), 0);
        } catch (RuntimeException why) {
          if (certain(why)) throw why;
          failed = why;
        }
        boolean late = start.elapsed() >= most;
        if (told != null && told.state.equals("HELD") && begun.elapsed() < told.lease - told.lease / LOST) return new Lock(key, begun, told);
        if (failed != null && late) throw new NotAcquired("the lock was not acquired", failed);
        if (told != null && (late || told.state.equals("BUSY"))) throw new NotAcquired("it is held by " + (told.holder == null ? "somebody else" : told.holder), null);
        if (begun.elapsed() < PAUSE) Thread.sleep(PAUSE);
      }
    }

    // Gives up the place in the queue. Where its reference is not known, that is asked for first.
    private void leave() throws InterruptedException {
      for (Moment begun = new Moment(); open && ref == null && begun.elapsed() < GIVE_UP; ) {
        try {
          next(0, GIVE_UP);
        } catch (RuntimeException why) {
          if (certain(why)) return;
        }
        if (open) Thread.sleep(PAUSE);
      }
      try {
        if (ref != null) key.unlock(ref);
      } catch (RuntimeException unheard) {
        // a place of which the proxy does not hear is passed over
      }
    }
  }

  private static final ScheduledThreadPoolExecutor CLOCK = new ScheduledThreadPoolExecutor(1, run -> {
    Thread thread = new Thread(run, "music-locks");
    thread.setDaemon(true);
    return thread;
  });

  static {
    CLOCK.setRemoveOnCancelPolicy(true); // else it keeps every lock that was released for a twentieth of its lease
  }

  /** A lock that is held, until close. It may be used by several threads. */
  public static final class Lock implements AutoCloseable {
    private final Key key;
    private final long token;
    private final boolean ownerDied;
    private final CompletableFuture<Void> lost = new CompletableFuture<>();
    private final ScheduledFuture<?> ticks;
    private Moment begun; // guarded by this, with what follows
    private long lease, next; // next: of a renewal, from begun on
    private boolean renewing, closed, released;

    private Lock(Key key, Moment begun, Answer told) {
      this.key = key;
      this.token = told.ref;
      this.ownerDied = told.ownerDied;
      held(begun, told.lease);
      long tick = Math.max(1, pace() / TICK);
      ticks = CLOCK.scheduleAtFixedRate(this::look, tick, tick, TimeUnit.MILLISECONDS);
    }

    private synchronized void held(Moment from, long ms) {
      begun = from;
      lease = ms;
      next = pace() / RENEW;
    }

    private synchronized long pace() { return Math.min(lease, PACE); }

    private synchronized long left() { return lease - begun.elapsed(); }

    /** The lock reference: larger than that of every holder before. */
    public long token() { return token; }

    /** Whether the holder before did not give it back: its work may be half done. */
    public boolean ownerDied() { return ownerDied; }

    /** Is completed when the lock is lost, or may be soon. What is attached to it should be short: it runs on the thread of all locks. */
    public CompletableFuture<Void> lost() { return lost.copy(); }

    public boolean isLost() { return lost.isDone() || left() <= 0; }

    /** Whether UNLOCK was answered RELEASED. */
    public synchronized boolean released() { return released; }

    /** A statement with its values; USING LOCK ? gets the token. It may go into a batch. */
    public BoundStatement bind(PreparedStatement statement, Object... values) {
      if (isLost()) throw new Lost("the lock is lost", null);
      ColumnDefinitions markers = statement.getVariableDefinitions();
      for (int i = 0; i < markers.size() && i <= values.length; i++) {
        if (markers.get(i).getName().asInternal().equals("[lock]")) {
          List<Object> all = new ArrayList<>(java.util.Arrays.asList(values));
          all.add(i, token);
          return statement.bind(all.toArray());
        }
      }
      throw new IllegalArgumentException("the statement has no USING LOCK ?");
    }

    // One tick.
    private synchronized void look() {
      if (left() <= lease / LOST) lost.complete(null);
      if (lost.isDone()) {
        ticks.cancel(false);
      } else if (!renewing && begun.elapsed() >= next) {
        renewing = true;
        Moment now = new Moment();
        key.again(pace() / 4, token, Math.min(ASK, pace() / 4)).whenComplete((told, failed) -> renewed(now, told, failed));
      }
    }

    private synchronized void renewed(Moment from, Answer told, Throwable failed) {
      renewing = false;
      next = begun.elapsed() + pace() / TICK;
      if (told != null && told.state.equals("HELD")) held(from, told.lease);
      if (!closed && (told != null && told.state.equals("LOST") || failed != null && ended(reason(failed)))) lost.complete(null);
    }

    /**
     * Calls write; where its fate is unknown, landed, which reads under the lock. Returns whether it landed. A thread that is interrupted
     * meanwhile gets the InterruptedException, and does not know.
     */
    public boolean settle(Callable<?> write, Callable<Boolean> landed) throws Exception {
      Exception unknown;
      try {
        write.call();
        return true;
      } catch (Exception failed) {
        if (failed instanceof InterruptedException || !uncertain(failed)) throw failed;
        unknown = failed;
      }
      for (; !isLost(); Thread.sleep(PAUSE)) {
        try {
          return landed.call();
        } catch (Exception failed) {
          if (says(reason(failed), "MUSIC_LOST")) break;
          if (failed instanceof InterruptedException || certain(reason(failed))) throw failed;
        }
      }
      throw new Lost("the lock is lost, and whether this was written is unknown", unknown);
    }

    /** Gives the lock back, once. A Lost where it was lost before. */
    @Override
    public void close() {
      synchronized (this) {
        if (closed) return;
        closed = true;
      }
      ticks.cancel(false);
      boolean interrupted = Thread.interrupted();
      try {
        key.unlock(token);
        synchronized (this) { released = true; }
      } catch (RuntimeException why) {
        if (why instanceof Lost) throw why;
        if (isLost()) throw new Lost("the lock is lost", why); // else it is left to the end of its lease
      } catch (InterruptedException again) {
        interrupted = true;
      } finally {
        if (interrupted) Thread.currentThread().interrupt();
      }
    }
  }

  private Music() {}
}
