package io.github.headgate;

import io.github.headgate.HeadgateException.Limited;
import java.io.IOException;
import java.math.BigInteger;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeParseException;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;

/**
 * Calls other services no faster than they allow. It remembers for each origin how long it asked to
 * wait, by Retry-After or RateLimit fields, and waits before the next call. A call answered with 429
 * or 503 and a time to wait is sent again. An origin is remembered for at most an hour, or the
 * longest wait if that is longer. Threads can share it.
 */
public final class Obeying {
    private static final long LONGEST = 3_600_000; // so that a wrong time does not end all calls
    private final HttpClient http;
    private final int retries;
    private final long maxWaitMillis;
    private final LongSupplier clock;
    private final Sleeper sleeper;
    private final Map<String, Long> until = new ConcurrentHashMap<>();

    interface Sleeper {
        void sleep(long millis) throws InterruptedException;
    }

    /** Sends a call again up to retries times. Before a wait above maxWait, send throws Limited. */
    public Obeying(HttpClient http, int retries, Duration maxWait) {
        this(http, retries, maxWait, System::currentTimeMillis, Thread::sleep);
    }

    Obeying(HttpClient http, int retries, Duration maxWait, LongSupplier clock, Sleeper sleeper) {
        this.http = http;
        this.retries = retries;
        this.maxWaitMillis = maxWait.toMillis();
        this.clock = clock;
        this.sleeper = sleeper;
    }

    /** Is HttpClient.send. The body of the request must be one that can be sent again. */
    public <T> HttpResponse<T> send(HttpRequest request, HttpResponse.BodyHandler<T> body) throws IOException, InterruptedException {
        String origin = request.uri().getScheme() + "://" + request.uri().getAuthority();
        for (int attempt = 0; ; attempt++) {
            long now = clock.getAsLong();
            Long turn = until.computeIfPresent(origin, (o, at) -> at > now ? at : null);
            long wait = turn == null ? 0 : turn - now;
            if (wait > maxWaitMillis) throw new Limited(origin, wait);
            if (wait > 0) sleeper.sleep(wait);
            HttpResponse<T> answer = http.send(request, body);
            long asked = Math.min(waitAsked(answer), Math.max(LONGEST, maxWaitMillis));
            if (asked > 0) until.merge(origin, clock.getAsLong() + asked, Math::max);
            boolean refused = answer.statusCode() == 429 || answer.statusCode() == 503;
            if (!refused || asked == 0 || asked > maxWaitMillis || attempt == retries) return answer;
        }
    }

    /** Returns how many milliseconds an answer asks to wait. */
    private long waitAsked(HttpResponse<?> answer) {
        String after = answer.headers().firstValue("Retry-After").orElse("").trim();
        if (!after.isEmpty() && (answer.statusCode() == 429 || answer.statusCode() == 503)) {
            if (after.matches("[0-9]{1,30}")) {
                BigInteger seconds = new BigInteger(after);
                return seconds.bitLength() < Long.SIZE ? millis(seconds.longValue(), answer) : LONGEST;
            }
            OptionalLong then = date(after);
            if (then.isPresent()) return Math.max(0, then.getAsLong() - served(answer));
        }
        long wait = 0;
        for (long seconds : Fields.exhausted(String.join(", ", answer.headers().allValues("RateLimit")))) {
            wait = Math.max(wait, millis(seconds, answer));
        }
        return wait;
    }

    /**
     * Reads a number of seconds. Some services send a time of day instead: a number that would be 31
     * years or more is in Unix seconds, or in milliseconds or finer.
     */
    private long millis(long seconds, HttpResponse<?> answer) {
        if (seconds < 1_000_000_000L) return seconds * 1000;
        while (seconds >= 1_000_000_000_000L) seconds = seconds / 1000 + 1;
        return Math.max(0, seconds * 1000 - served(answer));
    }

    /** Returns when the answer was sent, by the service's clock if it says so. */
    private long served(HttpResponse<?> answer) {
        return date(answer.headers().firstValue("Date").orElse("")).orElseGet(clock::getAsLong);
    }

    private static OptionalLong date(String text) {
        try {
            return OptionalLong.of(ZonedDateTime.parse(text, DateTimeFormatter.RFC_1123_DATE_TIME).toInstant().toEpochMilli());
        } catch (DateTimeParseException e) {
            return OptionalLong.empty();
        }
    }
}
