package io.github.headgate;

import io.github.headgate.HeadgateException.Kind;
import io.github.headgate.HeadgateException.Mistake;
import io.github.headgate.HeadgateException.Unavailable;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;

/** A client of one server, for any number of threads. It keeps connections open. */
public final class Headgate {
    private static final AtomicBoolean LOADED = new AtomicBoolean();
    private static final Pattern FIELDS = Pattern.compile("(x-)?ratelimit.*|retry-after");
    private final HttpClient http;
    private final String url;
    private final String token;
    private final Duration timeout;
    private final boolean failOpen;
    private final Consumer<Unavailable> onFailure;

    private Headgate(Builder b) {
        URI at = URI.create(b.url);
        if (at.getRawUserInfo() != null) { // not shown
            throw new IllegalArgumentException("the address has a user: want one such as http://127.0.0.1:8080");
        }
        if (!String.valueOf(at.getScheme()).matches("https?") || at.getHost() == null
                || at.getRawQuery() != null || at.getRawFragment() != null) {
            throw new IllegalArgumentException("\"" + b.url + "\" is not an address such as http://127.0.0.1:8080");
        }
        if (b.token != null && !b.token.matches("[!-~]+")) {
            throw new IllegalArgumentException("the token is empty or has other characters than visible ASCII");
        }
        if (b.timeout.isNegative() || b.timeout.isZero()) throw new IllegalArgumentException("the timeout is not positive");
        url = b.url.replaceAll("/+$", "");
        token = b.token;
        timeout = b.timeout;
        failOpen = b.failOpen;
        onFailure = b.onFailure;
        // The API is called as it is: no redirects, and no proxy of the system.
        HttpClient.Builder client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
                .followRedirects(HttpClient.Redirect.NEVER).proxy(HttpClient.Builder.NO_PROXY);
        if (b.tls != null) client.sslContext(b.tls);
        http = client.build();
        if (!LOADED.getAndSet(true)) load();
    }

    /** Makes a call, so that Java has loaded what calls need: that takes longer than a usual deadline. */
    private void load() {
        try {
            Object none = value(post("/v1/check", Map.of("checks", List.of()), Duration.ofSeconds(1)));
            new Decision(Map.of("allowed", true, "reason", none.toString()), Map.of(), null);
        } catch (HeadgateException e) {
            // whether it succeeds does not matter
        }
    }

    /** A client of the server at this address, such as http://127.0.0.1:8080. */
    public static Builder at(String url) {
        return new Builder(url);
    }

    /** The settings of a client. */
    public static final class Builder {
        private final String url;
        private String token;
        private Duration timeout = Duration.ofMillis(50);
        private boolean failOpen = true;
        private Consumer<Unavailable> onFailure = e -> { };
        private SSLContext tls;

        private Builder(String url) {
            this.url = url;
        }

        /** The token of the server's API. */
        public Builder token(String token) {
            this.token = token;
            return this;
        }

        /** The time for a whole call; 50 ms by default. */
        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        /** Refuses requests if Headgate does not answer; by default they pass. */
        public Builder failClosed() {
            failOpen = false;
            return this;
        }

        /** Is called for each check that Headgate did not answer, by the thread that asked. */
        public Builder onFailure(Consumer<Unavailable> hook) {
            onFailure = hook;
            return this;
        }

        /** For an authority of your own. */
        public Builder tls(SSLContext context) {
            tls = context;
            return this;
        }

        /**
         * Makes the client. The first one in a process calls the server, for up to a second.
         * Throws IllegalArgumentException if the address, token or timeout is invalid.
         */
        public Headgate build() {
            return new Headgate(this);
        }
    }

    /** Asks whether a request may pass. */
    public Decision check(Check check) {
        return decide("/v1/check", check.body());
    }

    /** Asks whether a request of cost 1 may pass. */
    public Decision check(String domain, Map<String, String> attributes) {
        return check(new Check(domain, attributes));
    }

    /** Decides up to 1000 checks, one after the other. */
    public List<Decision> checkMany(List<Check> checks) {
        try {
            Map<String, Object> body = Map.of("checks", checks.stream().map(Check::body).toList());
            if (!(Answer.object(value(post("/v1/check", body))).get("results") instanceof List<?> results)
                    || results.size() != checks.size()) {
                throw Answer.malformed("the answer does not have " + checks.size() + " results");
            }
            List<Decision> decisions = new ArrayList<>();
            for (Object r : results) decisions.add(new Decision(r, Map.of(), null));
            return decisions;
        } catch (Unavailable e) {
            return Collections.nCopies(checks.size(), failed(e));
        }
    }

    /** Charges an estimate, to settle within ttl. If allowed, commit or cancel the reservation of the answer. */
    public Decision reserve(Check check, Duration ttl) {
        Map<String, Object> body = check.body();
        body.put("ttl_ms", ttl.toMillis());
        return decide("/v1/reserve", body);
    }

    /** Charges an estimate, to settle within the time that the server allows by default. */
    public Decision reserve(Check check) {
        return decide("/v1/reserve", check.body());
    }

    /** Charges the real cost. Throws Unavailable; trying again is safe, as it counts once. */
    public Settlement commit(String reservation, long cost) {
        return settle("commit", "committed", Map.of("reservation", reservation, "cost", cost));
    }

    /** Refunds a reservation. Throws Unavailable; trying again is safe. */
    public Settlement cancel(String reservation) {
        return settle("cancel", "cancelled", Map.of("reservation", reservation));
    }

    /** Frees the slot of a concurrency rule. Throws Unavailable. */
    public Settlement release(String lease) {
        return settle("release", "released", Map.of("lease", lease));
    }

    /** Keeps a slot; the answer has its new lease. Throws Unavailable. */
    public Settlement renew(String lease) {
        return settle("renew", "renewed", Map.of("lease", lease));
    }

    /** Says how a request was answered, for rules with charge_on. Throws Unavailable. */
    public Settlement report(String report, int status, Map<String, String> headers) {
        return settle("report", "reported", Map.of("report", report, "status", status, "headers", headers));
    }

    private Decision decide(String path, Map<String, Object> body) {
        try {
            HttpResponse<String> answer = post(path, body);
            Map<String, String> headers = new LinkedHashMap<>();
            answer.headers().map().forEach((name, values) -> {
                String small = name.toLowerCase(Locale.ROOT);
                if (FIELDS.matcher(small).matches()) headers.put(small, String.join(", ", values));
            });
            Decision d = new Decision(value(answer), Collections.unmodifiableMap(headers), null);
            if (d.allowed() != (answer.statusCode() == 200)) throw Answer.malformed("status and body of the answer disagree");
            return d;
        } catch (Unavailable e) {
            return failed(e);
        }
    }

    private Settlement settle(String action, String verb, Map<String, Object> body) {
        return new Settlement(value(post("/v1/" + action, body)), verb);
    }

    /** Calls the hook and returns what to assume. */
    Decision failed(Unavailable e) {
        onFailure.accept(e);
        return new Decision(Map.of("allowed", failOpen, "reason", failOpen ? "fail_open" : "fail_closed"), Map.of(), e);
    }

    private HttpResponse<String> post(String path, Map<String, Object> body) {
        return post(path, body, timeout);
    }

    private HttpResponse<String> post(String path, Map<String, Object> body, Duration limit) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + path)).header("Content-Type", "application/json");
        if (token != null) request.header("Authorization", "Bearer " + token);
        CompletableFuture<HttpResponse<String>> call = http.sendAsync(
                request.POST(HttpRequest.BodyPublishers.ofString(Json.write(body))).build(), info -> new Body());
        try {
            return call.get(limit.toNanos(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            call.cancel(true);
            throw new Unavailable(Kind.TIMEOUT, "no answer in " + limit.toMillis() + " ms", null);
        } catch (ExecutionException e) {
            if (e.getCause() instanceof Unavailable u) throw u;
            throw new Unavailable(Kind.UNREACHABLE, String.valueOf(e.getCause()), e.getCause());
        } catch (InterruptedException e) {
            call.cancel(true);
            Thread.currentThread().interrupt();
            throw new Unavailable(Kind.UNREACHABLE, "interrupted", e);
        }
    }

    /** The JSON of an answer that is one: 200, or 429 for a check. */
    private static Object value(HttpResponse<String> answer) {
        int status = answer.statusCode();
        if (status >= 400 && status < 500 && status != 408 && status != 429) {
            if (Json.parse(answer.body()).orElse(null) instanceof Map<?, ?> problem && problem.get("detail") != null) {
                throw new Mistake(status, problem.get("detail").toString());
            }
            // something between here and Headgate answers
        }
        if (status != 200 && status != 429) throw new Unavailable(Kind.STATUS, "status " + status, null);
        return Json.parse(answer.body()).orElseThrow(() -> Answer.malformed("the answer is not JSON"));
    }
}
