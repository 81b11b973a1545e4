import java.io.*;
import java.net.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.locator.InetAddressAndPort;
import org.apache.cassandra.net.*;
import org.apache.cassandra.service.CassandraDaemon;
import org.apache.cassandra.utils.MonotonicClock;

/**
 * A Cassandra node whose outgoing messages can be dropped, delayed or held. Rules come as lines over the unix socket
 * -Dfault.socket, one answer line each; VERB is a name of {@link Verb} or *, ADDR an address or *, COUNT defaults to "for ever":
 *
 *   drop VERB ADDR [COUNT]      delay VERB ADDR MS [COUNT]      hold VERB ADDR [COUNT]     (held until `release`)
 *   release   send what is held, drop the hold rules            heal      the same, and forget all rules
 *   list      the rules with their hits                         skew MS   move the wall clock
 *
 * What a node sends to itself does not always pass here: -Dcassandra.paxos.use_self_execution=false makes Paxos v2 do so.
 */
public class FaultyCassandra
{
    static final class Rule
    {
        final String what, verb, addr; final long ms; long left; long hits;
        Rule(String what, String verb, String addr, long ms, long left) { this.what = what; this.verb = verb; this.addr = addr; this.ms = ms; this.left = left; }
        boolean matches(Message<?> m, InetAddressAndPort to)
        {
            return left > 0 && (verb.equals("*") || verb.equals(m.verb().name())) && (addr.equals("*") || addr.equals(to.getHostAddress(false)));
        }
        public String toString() { return what + ' ' + verb + ' ' + addr + (what.equals("delay") ? " " + ms + "ms" : "") + " hits=" + hits; }
    }

    static final List<Rule> rules = new ArrayList<>();
    static final List<Runnable> held = new ArrayList<>();
    static final Set<Message<?>> passed = Collections.newSetFromMap(new IdentityHashMap<>());  // delayed once: let through now
    static final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(r -> { Thread t = new Thread(r, "faults"); t.setDaemon(true); return t; });

    static synchronized boolean allow(Message<?> m, InetAddressAndPort to)
    {
        if (passed.remove(m))
            return true;
        for (Rule r : rules)
            if (r.matches(m, to))
            {
                r.left--; r.hits++;
                Runnable later = () -> resend(m, to);
                if (r.what.equals("delay")) timer.schedule(later, r.ms, TimeUnit.MILLISECONDS);
                if (r.what.equals("hold")) held.add(later);
                return false;
            }
        return true;
    }

    /** Sends a message again as if it were new, so that even one held for minutes has not expired when it arrives. */
    static <T> void resend(Message<T> m, InetAddressAndPort to)
    {
        long now = MonotonicClock.Global.approxTime.now();
        Message<T> again = Message.builder(m).withCreatedAt(now).withExpiresAt(now + TimeUnit.SECONDS.toNanos(10)).build();
        synchronized (FaultyCassandra.class) { passed.add(again); }
        MessagingService.instance().send(again, to);
    }

    static synchronized String command(String[] w)
    {
        switch (w[0])
        {
            case "drop": case "hold": case "delay":
                if (!w[1].equals("*")) Verb.valueOf(w[1]);  // a misspelt verb is an error, not a rule that never hits
                boolean d = w[0].equals("delay"); int c = d ? 4 : 3;
                rules.add(new Rule(w[0], w[1], w[2], d ? Long.parseLong(w[3]) : 0, w.length > c ? Long.parseLong(w[c]) : Long.MAX_VALUE));
                return "ok";
            case "heal": rules.clear(); // and release
            case "release": rules.removeIf(r -> r.what.equals("hold")); held.forEach(timer::execute); held.clear(); return "ok";
            case "list": return rules + " held=" + held.size();
            case "skew": SkewedClock.skew = Long.parseLong(w[1]); return "ok";
        }
        throw new IllegalArgumentException("unknown command");
    }

    static void serve(ServerSocketChannel at)
    {
        while (true)
            try (SocketChannel c = at.accept(); BufferedReader in = new BufferedReader(Channels.newReader(c, "UTF-8")); PrintWriter out = new PrintWriter(Channels.newWriter(c, "UTF-8"), true))
            {
                for (String line; (line = in.readLine()) != null; )
                    try { out.println(command(line.trim().split("\\s+"))); } catch (RuntimeException e) { out.println("error: " + e); }
            }
            catch (IOException e) { /* the client left */ }
    }

    public static void main(String[] args) throws Exception
    {
        Path path = Path.of(System.getProperty("fault.socket"));
        Files.deleteIfExists(path);
        ServerSocketChannel at = ServerSocketChannel.open(StandardProtocolFamily.UNIX).bind(UnixDomainSocketAddress.of(path));
        DatabaseDescriptor.daemonInitialization();
        MessagingService.instance().outboundSink.add(FaultyCassandra::allow);
        Thread t = new Thread(() -> serve(at), "fault-socket");
        t.setDaemon(true);
        t.start();
        CassandraDaemon.main(args);
    }
}
