package music;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.servererrors.UnavailableException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Does what it is told on its standard input, a line each, with these locks: see integration/clients. */
public final class Player {
  private static final String UPDATE = "UPDATE %s USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?";
  private static final String READ = "SELECT balance FROM %s WHERE branch = ? AND id = ? USING LOCK ?";
  private static final String PLAIN = "UPDATE %s SET balance = ? WHERE branch = ? AND id = ?";

  private static final class Failed extends RuntimeException {}

  private static final class Story {
    final Map<String, Actor> actors = new ConcurrentHashMap<>();
    volatile CqlSession session;
    volatile String table;
  }

  private static CqlSession connect(String address) {
    String[] parts = address.split(":");
    DriverConfigLoader config = DriverConfigLoader.programmaticBuilder()
        .withString(DefaultDriverOption.PROTOCOL_VERSION, "V4")
        .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(2))
        .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(20))
        .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, Duration.ofSeconds(20))
        .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, Duration.ofSeconds(20))
        .withBoolean(DefaultDriverOption.METADATA_SCHEMA_ENABLED, false)
        .withBoolean(DefaultDriverOption.METADATA_TOKEN_MAP_ENABLED, false)
        .withDuration(DefaultDriverOption.HEARTBEAT_INTERVAL, Duration.ofMinutes(10))
        .withString(DefaultDriverOption.RECONNECTION_POLICY_CLASS, "ConstantReconnectionPolicy")
        .withDuration(DefaultDriverOption.RECONNECTION_BASE_DELAY, Duration.ofMillis(50))
        .withInt(DefaultDriverOption.NETTY_IO_SIZE, 1)
        .withInt(DefaultDriverOption.NETTY_ADMIN_SIZE, 1)
        .withInt(DefaultDriverOption.SESSION_LEAK_THRESHOLD, 0)
        .build();
    return CqlSession.builder().addContactPoint(new InetSocketAddress(parts[0], Integer.parseInt(parts[1])))
        .withLocalDatacenter("dc1").withConfigLoader(config).build();
  }

  private static String outcome(Throwable error) {
    if (error instanceof Failed) return "failed";
    if (error instanceof Music.NoProxy) return "no proxy";
    if (error instanceof InterruptedException) return "cancelled";
    if (error instanceof AllNodesFailedException) {
      for (var all : ((AllNodesFailedException) error).getAllErrors().values()) error = all.get(0);
    }
    String text = String.valueOf(error.getMessage());
    if (error instanceof Music.Lost || text.contains("MUSIC_LOST")) return "lost";
    if (error instanceof Music.NotAcquired) return "not acquired";
    if (text.contains("USING LOCK ?")) return "no marker";
    if (error instanceof UnavailableException) return "error UNAVAILABLE";
    Matcher word = Pattern.compile("MUSIC_[A-Z_]+|UNAUTHORIZED").matcher(text);
    return word.find() ? "error " + word.group() : "error";
  }

  private static final class Actor extends Thread {
    final Story story;
    final String name;
    final BlockingQueue<String[]> does = new LinkedBlockingQueue<>();
    volatile Music.Lock lock;

    Actor(Story story, String name) {
      this.story = story;
      this.name = name;
      setDaemon(true);
      start();
    }

    void say(String what) {
      synchronized (System.out) {
        System.out.println(name + " " + what);
        System.out.flush();
      }
    }

    @Override
    public void run() {
      while (true) {
        try {
          String[] words = does.take();
          switch (words[0]) {
            case "open":
              story.table = words[2];
              story.session = connect(words[1]);
              say("open");
              break;
            case "hold":
            case "try":
              section(words);
              break;
            case "once":
              say(Music.once(story.session, words[1], words[2], lock -> {
                say("works");
                if (words.length > 3) Music.tryHold(story.session, new Music.Ask(story.table).key("branch", "zurich")).close();
              }) ? "ran" : "not run");
              break;
            default:
              say(under(lock, words));
          }
        } catch (Throwable error) {
          say(outcome(error));
        }
      }
    }

    void section(String[] words) throws Exception {
      String table = story.table;
      Map<String, String> key = new HashMap<>(Map.of("branch", "zurich"));
      Duration wait = null, lease = null;
      String as = null;
      for (String arg : Arrays.asList(words).subList(1, words.length)) {
        String value = arg.substring(arg.indexOf('=') + 1);
        String name = arg.substring(0, arg.indexOf('='));
        switch (name) {
          case "table": table = value; break;
          case "as": as = value; break;
          case "wait": wait = Duration.ofMillis(Long.parseLong(value)); break;
          case "lease": lease = Duration.ofMillis(Long.parseLong(value)); break;
          default: key.put(name, value);
        }
      }
      Music.Ask ask = new Music.Ask(table).as(as);
      key.forEach(ask::key);
      if (wait != null) ask.wait(wait);
      if (lease != null) ask.lease(lease);
      Music.Lock mine = null;
      try (Music.Lock lock = words[0].equals("hold") ? Music.hold(story.session, ask) : Music.tryHold(story.session, ask)) {
        this.lock = mine = lock;
        say("held " + lock.token() + (lock.ownerDied() ? " after a death" : ""));
        for (String[] told = does.take(); !told[0].equals("release"); told = does.take()) {
          if (told[0].equals("fail")) throw new Failed();
          try {
            say(under(lock, told));
          } catch (Exception error) {
            say(outcome(error));
          }
        }
      } catch (Failed failed) {
        say("failed");
      }
      say(mine.released() ? "released" : "left");
    }

    String under(Music.Lock own, String[] words) throws Exception {
      if (words[0].equals("lost")) {
        own.lost().join();
        return "lost";
      }
      if (words[0].equals("check")) return own.isLost() ? "lost" : "not lost";
      Music.Lock lock = words.length > 2 ? story.actors.get(words[2]).lock : own;
      CqlSession session = story.session;
      long value = Long.parseLong(words[1]);
      PreparedStatement update = session.prepare(String.format(UPDATE, story.table));
      PreparedStatement read = session.prepare(String.format(READ, story.table));
      switch (words[0]) {
        case "read":
          return "reads " + session.execute(lock.bind(read, "zurich", "x")).one().getLong(0);
        case "settle":
        case "settle-plain":
          PreparedStatement write = words[0].equals("settle") ? update : session.prepare(String.format(PLAIN, story.table));
          boolean landed = lock.settle(() -> session.execute(lock.bind(write, value, "zurich", "x")),
              () -> session.executeAsync(lock.bind(read, "zurich", "x")).toCompletableFuture().get().one().getLong(0) == value);
          return landed ? "landed" : "not landed";
        case "plain":
          session.execute(lock.bind(session.prepare(String.format(PLAIN, story.table)), value, "zurich", "x"));
          break;
        case "batch":
          session.execute(BatchStatement.newInstance(DefaultBatchType.UNLOGGED,
              lock.bind(update, value, "zurich", "x"), lock.bind(update, value + 1, "zurich", "y")));
          break;
        default:
          session.execute(lock.bind(update, value, "zurich", "x"));
      }
      return "written";
    }
  }

  public static void main(String[] args) throws Exception {
    Map<String, Story> stories = new ConcurrentHashMap<>();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ");
      Story story = stories.computeIfAbsent(words[0], id -> new Story());
      Actor actor = story.actors.computeIfAbsent(words[1], name -> new Actor(story, words[0] + " " + name));
      if (words[2].equals("cancel")) {
        actor.interrupt();
      } else {
        actor.does.add(Arrays.copyOfRange(words, 2, words.length));
      }
    }
    System.exit(0);
  }
}
