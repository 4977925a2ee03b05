package io.github.headgate;

import io.github.headgate.HeadgateException.Limited;
import java.io.IOException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeParseException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Calls other services no faster than they allow. It remembers for each origin how long it asked to
 * wait, by Retry-After or RateLimit fields, and waits before the next call. A call answered with 429
 * or 503 and a time to wait is sent again. Threads can share it.
 */
public final class Obeying {
    private static final Pattern MEMBER = Pattern.compile(";\\s*([rt])=([0-9]{1,15})(?=\\s*(?:;|$))");
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
            long asked = waitAsked(answer);
            if (asked > 0) until.merge(origin, clock.getAsLong() + asked, Math::max);
            boolean refused = answer.statusCode() == 429 || answer.statusCode() == 503;
            if (!refused || asked == 0 || asked > maxWaitMillis || attempt == retries) return answer;
        }
    }

    /** Returns how many milliseconds an answer asks to wait. */
    private long waitAsked(HttpResponse<?> answer) {
        String after = answer.headers().firstValue("Retry-After").orElse("").trim();
        if (!after.isEmpty() && (answer.statusCode() == 429 || answer.statusCode() == 503)) {
            if (after.matches("[0-9]{1,15}")) return Long.parseLong(after) * 1000;
            try {
                long at = ZonedDateTime.parse(after, DateTimeFormatter.RFC_1123_DATE_TIME).toInstant().toEpochMilli();
                return Math.max(0, at - clock.getAsLong());
            } catch (DateTimeParseException e) {
                // it says nothing
            }
        }
        long wait = 0;
        String fields = String.join(",", answer.headers().allValues("RateLimit"));
        for (String item : fields.replaceAll("\"(?:[^\"\\\\]|\\\\.)*\"", "").split(",")) {
            long remaining = -1, time = 0;
            for (Matcher m = MEMBER.matcher(item); m.find(); ) {
                if (m.group(1).equals("r")) remaining = Long.parseLong(m.group(2));
                else time = Long.parseLong(m.group(2));
            }
            if (remaining == 0) wait = Math.max(wait, time * 1000);
        }
        return wait;
    }
}
