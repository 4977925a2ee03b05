package io.github.headgate;

import io.github.headgate.HeadgateException.Unavailable;
import java.util.List;
import java.util.Map;

/** The answer to a check, with the fields of the HTTP API. Times are in milliseconds. What is absent is null. */
public final class Decision extends Answer {
    private final Map<String, String> headers;
    private final Unavailable error;

    Decision(Object value, Map<String, String> headers, Unavailable error) {
        super(value);
        if (flag("allowed") == null || text("reason") == null) throw malformed("the answer has no decision");
        this.headers = headers;
        this.error = error;
    }

    /** Whether the request may pass. */
    public boolean allowed() {
        return flag("allowed");
    }

    /** Why, such as ok, limited, unlimited, fail_open or fail_closed. */
    public String reason() {
        return text("reason");
    }

    /** The rule that decided. */
    public String rule() {
        return text("rule");
    }

    /** The limit of the rule. */
    public Long limit() {
        return number("limit");
    }

    /** What is left of the limit. */
    public Long remaining() {
        return number("remaining");
    }

    /** When to come back; null for a refused request means that waiting does not help. */
    public Long retryAfterMillis() {
        return number("retry_after_ms");
    }

    /** When all of the limit is available again. */
    public Long resetAfterMillis() {
        return number("reset_after_ms");
    }

    /** What to do with the request, such as delay or shadow_ban. */
    public String action() {
        return text("action");
    }

    /** How long to wait before an allowed request is served; usually 0. */
    public long delayMillis() {
        return number("delay_ms") == null ? 0 : number("delay_ms");
    }

    /** The slot of a concurrency rule, to release when the request ends. */
    public String lease() {
        return text("lease");
    }

    /** For {@link Headgate#report}, when the answer to the request is known. */
    public String report() {
        return text("report");
    }

    /** For {@link Headgate#commit} or {@link Headgate#cancel}. */
    public String reservation() {
        return text("reservation");
    }

    /** When the key was created, in RFC 3339; only of a peek. */
    public String createdAt() {
        return text("created_at");
    }

    /** When the key last changed, in RFC 3339; only of a peek. */
    public String changedAt() {
        return text("changed_at");
    }

    /** The rules in shadow mode that would have refused. */
    public List<String> shadow() {
        return list("shadow");
    }

    /** The rules that mark the request: it passes, and is over a soft limit. */
    public List<String> soft() {
        return list("soft");
    }

    /** The rate limit fields of the answer, for your own answer. Names are in small letters. */
    public Map<String, String> headers() {
        return headers;
    }

    /** Why Headgate did not decide, or null; allowed is then what the client was told to assume. */
    public Unavailable error() {
        return error;
    }
}
