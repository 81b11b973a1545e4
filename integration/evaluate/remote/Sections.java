import java.io.*;
import java.util.concurrent.*;

/**
 * The loop of a program that carries out sections for package remote: requests come from standard input, answers go to standard
 * output. Each section has a thread of its own, since locks of libraries belong to threads.
 */
abstract class Sections {
  /** A section that its own library reports as ended. */
  static class Lost extends Exception {
    Lost(String why) { super(why); }
  }

  /** A section. */
  interface Held {
    /** Returns the value, or null where there is none. */
    byte[] get() throws Exception;

    void put(byte[] value) throws Exception;

    void leave() throws Exception;

    default void renew() throws Exception {}
  }

  /** Waits until the key is held, or until its thread is interrupted. */
  abstract Held enter(String key) throws Exception;

  /** A thread of a section, and the section once it was entered. */
  private static class Worker extends Thread {
    final BlockingQueue<Runnable> work = new LinkedBlockingQueue<>();
    volatile Held held;
    volatile boolean over;

    @Override
    public void run() {
      while (!over) {
        try {
          work.take().run();
        } catch (InterruptedException e) {
          // an Enter was given up after it had ended
        }
      }
    }
  }

  private static final byte[] NOTHING = {};
  private final ConcurrentMap<Integer, Worker> sections = new ConcurrentHashMap<>();
  private final DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));

  private synchronized void answer(int id, int status, byte[] text) {
    try {
      out.writeInt(id);
      out.writeByte(status);
      out.writeInt(text.length);
      out.write(text);
      out.flush();
    } catch (IOException e) {
      System.exit(1); // the parent is gone
    }
  }

  private void fail(int id, Throwable e) {
    answer(id, e instanceof Lost ? 2 : 3, String.valueOf(e).getBytes());
  }

  /** Serves until there are no more requests. */
  void serve() throws IOException {
    DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
    answer(0, 0, NOTHING);
    try {
      while (true) {
        int id = in.readInt();
        byte op = in.readByte();
        int section = in.readInt();
        byte[] text = new byte[in.readInt()];
        in.readFully(text);
        request(id, op, section, text);
      }
    } catch (EOFException e) {
      System.exit(0);
    }
  }

  private void request(int id, byte op, int section, byte[] text) {
    if (op == 'e') {
      Worker w = new Worker();
      w.setDaemon(true);
      sections.put(id, w);
      w.work.add(() -> begin(id, w, new String(text)));
      w.start();
      return;
    }
    Worker w = sections.get(section);
    if (op == 'c') {
      if (w != null && w.held == null) w.interrupt();
      answer(id, 0, NOTHING);
    } else if (w == null) {
      fail(id, new Lost("there is no such section"));
    } else {
      w.work.add(() -> act(id, op, section, w, text));
    }
  }

  private void begin(int id, Worker w, String key) {
    try {
      w.held = enter(key);
      answer(id, 0, NOTHING);
    } catch (Exception e) {
      sections.remove(id);
      w.over = true;
      fail(id, e);
    }
  }

  private void act(int id, byte op, int section, Worker w, byte[] text) {
    try {
      byte[] value = NOTHING;
      switch (op) {
        case 'g':
          value = w.held.get();
          if (value == null) {
            answer(id, 1, NOTHING);
            return;
          }
          break;
        case 'p': w.held.put(text); break;
        case 'r': w.held.renew(); break;
        case 'l':
          sections.remove(section);
          w.over = true;
          w.held.leave();
          break;
        default: throw new IllegalArgumentException("no operation " + op);
      }
      answer(id, 0, value);
    } catch (Exception e) {
      fail(id, e);
    }
  }
}
