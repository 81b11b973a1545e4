import org.apache.cassandra.utils.Clock;

/** A node's wall clock, off by {@link #skew} ms. nanoTime is not changed, so time-outs keep their length. */
public class SkewedClock extends Clock.Default
{
    static volatile long skew = Long.getLong("skew.ms", 0);

    @Override
    public long currentTimeMillis()
    {
        return super.currentTimeMillis() + skew;
    }
}
