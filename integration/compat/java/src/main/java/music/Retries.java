package music;

import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.context.DriverContext;
import com.datastax.oss.driver.api.core.retry.RetryDecision;
import com.datastax.oss.driver.api.core.retry.RetryPolicy;
import com.datastax.oss.driver.api.core.servererrors.CoordinatorException;
import com.datastax.oss.driver.api.core.servererrors.WriteType;
import com.datastax.oss.driver.api.core.session.Request;

/** Retries once if a node is missing, and records how it was called. */
public final class Retries implements RetryPolicy {
  /** The constructor that the driver looks for. */
  public Retries(DriverContext context, String profile) {}

  private static RetryDecision decide(int count, Object... told) {
    Compat.tell("retry", told);
    return count == 0 ? RetryDecision.RETRY_SAME : RetryDecision.RETHROW;
  }

  @Override
  @Deprecated
  public RetryDecision onReadTimeout(Request request, ConsistencyLevel level, int required, int received, boolean data, int count) {
    return decide(count, "read timeout", level, required, received, data, count);
  }

  @Override
  @Deprecated
  public RetryDecision onWriteTimeout(Request request, ConsistencyLevel level, WriteType type, int required, int received, int count) {
    return decide(count, "write timeout", level, type, required, received, count);
  }

  @Override
  @Deprecated
  public RetryDecision onUnavailable(Request request, ConsistencyLevel level, int required, int alive, int count) {
    return decide(count, "unavailable", level, required, alive, count);
  }

  @Override
  @Deprecated
  public RetryDecision onRequestAborted(Request request, Throwable error, int count) {
    return decide(count, "aborted", error.getClass().getSimpleName(), count);
  }

  @Override
  @Deprecated
  public RetryDecision onErrorResponse(Request request, CoordinatorException error, int count) {
    return decide(count, "error", error.getClass().getSimpleName(), count);
  }

  @Override
  public void close() {}
}
