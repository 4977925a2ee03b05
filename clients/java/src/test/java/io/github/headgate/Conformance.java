package io.github.headgate;

import io.github.headgate.HeadgateException.Limited;
import io.github.headgate.HeadgateException.Mistake;
import io.github.headgate.HeadgateException.Unavailable;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Runs the steps of clients/conformance with this client: one a line, as JSON, from standard input. */
final class Conformance {
    private final Map<String, Headgate> clients = new HashMap<>();
    private final List<String> failures = Collections.synchronizedList(new ArrayList<>());
    private final List<Long> waits = new ArrayList<>();
    private long aheadMillis;
    private final Obeying obeying = new Obeying(
            HttpClient.newHttpClient(), 2, Duration.ofMinutes(1), () -> System.currentTimeMillis() + aheadMillis, this::skip);

    public static void main(String[] arguments) throws Exception {
        Conformance runner = new Conformance();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(Json.write(runner.run(object(Json.parse(line).orElseThrow()))));
        }
        System.exit(0); // Tomcat's threads would go on
    }

    private void skip(long millis) {
        aheadMillis += millis;
        waits.add((millis + 999) / 1000);
    }

    @SuppressWarnings("unchecked") // Json makes no other maps
    private static Map<String, Object> object(Object value) {
        return value == null ? Map.of() : (Map<String, Object>) value;
    }

    @SuppressWarnings("unchecked") // the attributes of a step are texts
    private static Map<String, String> texts(Object value) {
        return value == null ? Map.of() : (Map<String, String>) value;
    }

    private Map<String, Object> run(Map<String, Object> step) throws Exception {
        failures.clear();
        waits.clear();
        long started = System.nanoTime();
        Map<String, Object> outcome = switch ((String) step.get("do")) {
            case "call" -> called((String) object(step.get("client")).get("url"));
            case "serve" -> Map.of("url", Serving.start(client(object(step.get("client")))));
            default -> valid(step);
        };
        Map<String, Object> all = new LinkedHashMap<>(outcome);
        all.put("failures", List.copyOf(failures));
        all.put("took_ms", (System.nanoTime() - started) / 1_000_000);
        return all;
    }

    private Headgate client(Map<String, Object> options) throws GeneralSecurityException, IOException {
        String key = Json.write(options);
        if (!clients.containsKey(key)) {
            String url = (String) options.get("url");
            Headgate.Builder b = Headgate.at(url).token((String) options.get("token"))
                    .onFailure(e -> failures.add(e.kind().name().toLowerCase(Locale.ROOT)));
            if (options.get("timeout_ms") instanceof Long timeout) b.timeout(Duration.ofMillis(timeout));
            if (Boolean.FALSE.equals(options.get("fail_open"))) b.failClosed();
            if (url.startsWith("https")) b.tls(trusting(Path.of((String) options.get("ca"))));
            clients.put(key, b.build());
        }
        return clients.get(key);
    }

    private static SSLContext trusting(Path authority) throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream in = Files.newInputStream(authority)) {
            store.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    private Map<String, Object> valid(Map<String, Object> step) throws Exception {
        try {
            client(object(step.get("client")));
        } catch (IllegalArgumentException e) {
            return Map.of("invalid", e.getMessage());
        }
        return several(step);
    }

    private Map<String, Object> several(Map<String, Object> step) throws Exception {
        Headgate client = client(object(step.get("client")));
        Callable<Map<String, Object>> once = () -> once(client, step);
        int parallel = ((Long) step.get("parallel")).intValue();
        int series = ((Long) step.get("series")).intValue();
        List<Map<String, Object>> results = new ArrayList<>();
        if (parallel > 0) {
            ExecutorService pool = Executors.newFixedThreadPool(parallel);
            for (Future<Map<String, Object>> f : pool.invokeAll(Collections.nCopies(parallel, once))) results.add(f.get());
            pool.shutdown();
            return Map.of("results", results);
        }
        for (int i = 0; i < series; i++) results.add(once.call());
        return series > 1 ? Map.of("results", results) : results.get(0);
    }

    private static Map<String, Object> once(Headgate client, Map<String, Object> step) {
        try {
            return done(client, (String) step.get("do"), object(step.get("with")));
        } catch (Mistake e) {
            return Map.of("mistake", e.status(), "detail", e.detail());
        } catch (Unavailable e) {
            return Map.of("unavailable", e.kind().name().toLowerCase(Locale.ROOT));
        }
    }

    private static Map<String, Object> done(Headgate client, String call, Map<String, Object> with) {
        String reservation = (String) with.get("reservation");
        String lease = (String) with.get("lease");
        return switch (call) {
            case "check" -> shown(client.check(check(with)));
            case "check_many" -> {
                List<Check> checks = ((List<?>) with.get("checks")).stream().map(c -> check(object(c))).toList();
                yield Map.of("results", client.checkMany(checks).stream().map(Conformance::shown).toList());
            }
            case "reserve" -> shown(with.get("ttl_ms") instanceof Long ttl
                    ? client.reserve(check(with), Duration.ofMillis(ttl)) : client.reserve(check(with)));
            case "commit" -> shown(client.commit(reservation, (Long) with.get("cost")));
            case "cancel" -> shown(client.cancel(reservation));
            case "release" -> shown(client.release(lease));
            case "renew" -> shown(client.renew(lease));
            case "report" -> shown(client.report(
                    (String) with.get("report"), ((Long) with.get("status")).intValue(), texts(with.get("headers"))));
            default -> throw new IllegalArgumentException("unknown call " + call);
        };
    }

    private static Check check(Map<String, Object> with) {
        Check check = new Check((String) with.get("domain"), texts(with.get("attributes")));
        if (with.get("cost") instanceof Long cost) check = check.cost(cost);
        return Boolean.TRUE.equals(with.get("peek")) ? check.peek() : check;
    }

    private static Map<String, Object> shown(Decision d) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("allowed", d.allowed());
        shown.put("reason", d.reason());
        shown.put("rule", d.rule());
        shown.put("limit", d.limit());
        shown.put("remaining", d.remaining());
        shown.put("retry_after_ms", d.retryAfterMillis());
        shown.put("reset_after_ms", d.resetAfterMillis());
        shown.put("action", d.action());
        shown.put("delay_ms", d.delayMillis());
        shown.put("lease", d.lease());
        shown.put("report", d.report());
        shown.put("reservation", d.reservation());
        shown.put("created_at", d.createdAt());
        shown.put("changed_at", d.changedAt());
        shown.put("shadow", d.shadow());
        shown.put("soft", d.soft());
        shown.put("headers", d.headers());
        shown.put("error", d.error() == null ? null : d.error().kind().name().toLowerCase(Locale.ROOT));
        return shown;
    }

    private static Map<String, Object> shown(Settlement s) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("done", s.done());
        shown.put("reason", s.reason());
        shown.put("in_debt", s.inDebt());
        shown.put("counted", s.counted());
        shown.put("lease", s.lease());
        shown.put("rules_gone", s.rulesGone());
        return shown;
    }

    private Map<String, Object> called(String url) throws IOException, InterruptedException {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
            return Map.of("status", obeying.send(request, HttpResponse.BodyHandlers.discarding()).statusCode(), "waits", List.copyOf(waits));
        } catch (Limited e) {
            return Map.of("limited", e.waitMillis() / 1000, "waits", List.copyOf(waits));
        }
    }
}
