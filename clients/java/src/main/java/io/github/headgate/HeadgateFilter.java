package io.github.headgate;

import io.github.headgate.HeadgateException.Kind;
import io.github.headgate.HeadgateException.Mistake;
import io.github.headgate.HeadgateException.Unavailable;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpServletResponseWrapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.stream.Stream;

/** Checks each request of a web application, and answers those that are refused. */
public final class HeadgateFilter implements Filter {
    private static final String SOFT = "io.github.headgate.soft";
    private static final String PROBLEMS = "https://iana.org/assignments/http-problem-types#";
    private final Headgate gate;
    private final String domain;
    private final Function<HttpServletRequest, Map<String, String>> attributes;

    /** Sends method, path, host and the client_ip of the connection. */
    public HeadgateFilter(Headgate gate, String domain) {
        this(gate, domain, request -> Map.of());
    }

    /** Sends these attributes too, or instead of those with their names. */
    public HeadgateFilter(Headgate gate, String domain, Function<HttpServletRequest, Map<String, String>> attributes) {
        this.gate = gate;
        this.domain = domain;
        this.attributes = attributes;
    }

    /** The rules that mark a request, which then passes and is over a soft limit; usually none. */
    @SuppressWarnings("unchecked") // only the filter sets the attribute
    public static List<String> soft(ServletRequest request) {
        return request.getAttribute(SOFT) instanceof List<?> marks ? (List<String>) marks : List.of();
    }

    /** Remembers the marks of a request, after those of an outer filter. */
    private static void mark(ServletRequest request, Decision d) {
        if (!d.soft().isEmpty()) {
            request.setAttribute(SOFT, Stream.concat(soft(request).stream(), d.soft().stream()).toList());
        }
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
        if (request.getDispatcherType() != DispatcherType.REQUEST
                || !(request instanceof HttpServletRequest asked) || !(response instanceof HttpServletResponse answer)) {
            chain.doFilter(request, response); // it was checked when it arrived
            return;
        }
        Decision d = gate.check(domain, described(asked));
        if (!d.allowed()) {
            refuse(answer, d);
            return;
        }
        mark(request, d);
        boolean returned = false;
        try {
            if (d.delayMillis() > 0) Thread.sleep(d.delayMillis());
            d.headers().forEach(answer::setHeader);
            chain.doFilter(request, new Told(answer, d.headers()));
            returned = true;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new ServletException("interrupted while a request waited for its turn", e);
        } finally {
            if (returned && request.isAsyncStarted()) {
                request.getAsyncContext().addListener(new End(d, answer));
            } else {
                end(d, returned ? answer.getStatus() : HttpServletResponse.SC_INTERNAL_SERVER_ERROR);
            }
        }
    }

    /** An answer in which our fields have one value, whatever the application sets. */
    private static final class Told extends HttpServletResponseWrapper {
        private final Map<String, String> ours = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        private final Map<String, String> theirs = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);

        Told(HttpServletResponse answer, Map<String, String> ours) {
            super(answer);
            this.ours.putAll(ours);
        }

        @Override
        public void setHeader(String name, String value) {
            theirs.remove(name);
            if (ours.containsKey(name)) addHeader(name, value);
            else super.setHeader(name, value);
        }

        @Override
        public void addHeader(String name, String value) {
            String own = ours.get(name);
            if (own == null) {
                super.addHeader(name, value);
            } else if (value != null) {
                super.setHeader(name, Fields.joined(theirs.merge(name, value, (a, b) -> a + ", " + b), name, own));
            }
        }

        @Override
        public void setIntHeader(String name, int value) {
            setHeader(name, Integer.toString(value));
        }

        @Override
        public void addIntHeader(String name, int value) {
            addHeader(name, Integer.toString(value));
        }
    }

    private Map<String, String> described(HttpServletRequest request) {
        Map<String, String> known = new HashMap<>();
        known.put("method", request.getMethod());
        known.put("path", request.getRequestURI()); // as it was sent: the server matches every reading of it
        known.put("host", request.getHeader("Host") != null ? request.getHeader("Host") : request.getServerName());
        String address = request.getRemoteAddr();
        if (address != null && !address.isEmpty()) { // as of a Unix socket
            known.put("client_ip", address.replaceAll("%[^\\]]*|[\\[\\]]", "")); // without zone and brackets
        }
        known.putAll(attributes.apply(request));
        return known;
    }

    /** Answers a refused request as Headgate's own doors do. */
    private static void refuse(HttpServletResponse answer, Decision d) throws IOException {
        boolean failed = d.reason().equals("fail_closed");
        boolean hidden = "shadow_ban".equals(d.action());
        boolean reduced = failed || d.reason().equals("headroom") && !hidden;
        int status = reduced ? HttpServletResponse.SC_SERVICE_UNAVAILABLE : 429;
        Map<String, Object> problem = new LinkedHashMap<>();
        boolean banned = d.reason().equals("banned") && !hidden;
        problem.put("type", PROBLEMS + (reduced ? "temporary-reduced-capacity" : banned ? "abnormal-usage-detected" : "quota-exceeded"));
        problem.put("title", reduced ? "Capacity temporarily reduced" : banned ? "Abnormal usage detected" : "Request quota exceeded");
        problem.put("status", status);
        problem.put("detail", "Try again later.");
        if (d.rule() != null && !hidden) problem.put("violated-policies", List.of(d.rule()));
        if (d.retryAfterMillis() != null && !hidden) problem.put("retry_after_ms", d.retryAfterMillis());
        byte[] body = Json.write(problem).getBytes(StandardCharsets.UTF_8);
        answer.setStatus(status);
        if (!hidden) d.headers().forEach(answer::setHeader);
        if (failed) answer.setHeader("Retry-After", "1");
        answer.setHeader("Cache-Control", "no-store");
        answer.setContentType("application/problem+json");
        answer.setContentLength(body.length);
        answer.getOutputStream().write(body);
    }

    /** Frees the slot of a request and reports its answer. */
    private void end(Decision d, int status) {
        boolean interrupted = Thread.interrupted(); // or no call would be made
        try {
            if (d.lease() != null) gate.release(d.lease());
            if (d.report() != null) gate.report(d.report(), status, Map.of());
        } catch (Unavailable e) {
            gate.failed(e);
        } catch (Mistake e) { // Headgate forgot the slot when it restarted; the answer is out
            gate.failed(new Unavailable(Kind.STATUS, e.getMessage(), e));
        } finally {
            if (interrupted) Thread.currentThread().interrupt();
        }
    }

    /** Ends a request that is answered by another thread. */
    private final class End implements AsyncListener {
        private final Decision decision;
        private final HttpServletResponse answer;
        private final AtomicBoolean ended = new AtomicBoolean();

        End(Decision decision, HttpServletResponse answer) {
            this.decision = decision;
            this.answer = answer;
        }

        @Override
        public void onComplete(AsyncEvent event) {
            endOnce(answer.getStatus());
        }

        @Override
        public void onStartAsync(AsyncEvent event) {
            event.getAsyncContext().addListener(this); // a new start forgets the listeners
        }

        @Override
        public void onError(AsyncEvent event) {
            // onComplete does not follow if the application completes the request at the same moment
            endOnce(HttpServletResponse.SC_INTERNAL_SERVER_ERROR);
        }

        @Override
        public void onTimeout(AsyncEvent event) {
            // onComplete follows
        }

        private void endOnce(int status) {
            if (!ended.getAndSet(true)) end(decision, status);
        }
    }
}
