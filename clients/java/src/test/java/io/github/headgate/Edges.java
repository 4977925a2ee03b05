package io.github.headgate;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** What the steps of clients/conformance cannot say, as it is about Java alone. The argument is the address of a Headgate. */
final class Edges {
    private static final Map<String, String> SLOT = Map.of("path", "/turn", "client_ip", "192.0.2.79");

    private Edges() {
    }

    public static void main(String[] arguments) throws Exception {
        Headgate gate = Headgate.at(arguments[0]).timeout(Duration.ofSeconds(5)).build();
        interrupted(gate, true);
        gate.release(gate.check("api", SLOT).lease()); // so that the next one has to wait
        interrupted(gate, false);
        marked(gate);
        System.exit(0);
    }

    /**
     * A request whose thread is interrupted frees its slot: in the application if it is its turn, or
     * while it waits. The thread stays interrupted.
     */
    private static void interrupted(Headgate gate, boolean turn) throws InterruptedException {
        HttpServletRequest request = request();
        HttpServletResponse response = response();
        FilterChain application = (asked, answer) -> {
            check(turn, "it was not its turn");
            Thread.currentThread().interrupt();
            throw new ServletException("interrupted");
        };
        boolean[] still = {false};
        Thread thread = new Thread(() -> {
            try {
                new HeadgateFilter(gate, "api").doFilter(request, response, application);
            } catch (Exception e) {
                still[0] = e instanceof ServletException && Thread.currentThread().isInterrupted();
            }
        });
        thread.start();
        if (!turn) {
            while (thread.isAlive() && Arrays.stream(thread.getStackTrace()).noneMatch(f -> f.getMethodName().equals("sleep"))) Thread.sleep(1);
            thread.interrupt();
        }
        thread.join();
        check(still[0], "the interrupt was lost");
        check(taken(gate) == null, "the slot is still taken");
    }

    /** An inner filter adds its marks to those of an outer one. */
    private static void marked(Headgate gate) throws Exception {
        for (List<String> want : List.of(List.of("fair-use"), List.of("fair-use", "most-used", "fair-use"))) {
            List<String> seen = new ArrayList<>();
            FilterChain chain = (asked, answer) -> seen.addAll(HeadgateFilter.soft(asked));
            for (String path : List.of("/elsewhere", "/marked/once", "/marked/both")) { // from the inner one
                FilterChain inner = chain;
                HeadgateFilter filter = new HeadgateFilter(gate, "api", r -> Map.of("path", path, "client_ip", "192.0.2.80"));
                chain = (asked, answer) -> filter.doFilter(asked, answer, inner);
            }
            chain.doFilter(request(), response());
            check(seen.equals(want), "the marks are " + seen);
        }
    }

    private static HttpServletRequest request() {
        Map<String, Object> attributes = new HashMap<>();
        return (HttpServletRequest) Proxy.newProxyInstance(Edges.class.getClassLoader(), new Class<?>[] {HttpServletRequest.class},
                (proxy, method, with) -> switch (method.getName()) {
                    case "getDispatcherType" -> DispatcherType.REQUEST;
                    case "getMethod" -> "GET";
                    case "getRequestURI" -> SLOT.get("path");
                    case "getRemoteAddr" -> SLOT.get("client_ip");
                    case "getServerName" -> "localhost";
                    case "isAsyncStarted" -> false;
                    case "getAttribute" -> attributes.get((String) with[0]);
                    case "setAttribute" -> {
                        attributes.put((String) with[0], with[1]);
                        yield null;
                    }
                    default -> null;
                });
    }

    private static HttpServletResponse response() {
        return (HttpServletResponse) Proxy.newProxyInstance(Edges.class.getClassLoader(), new Class<?>[] {HttpServletResponse.class},
                (proxy, method, with) -> method.getName().equals("getStatus") ? HttpServletResponse.SC_OK : null);
    }

    /** Returns the rule that refuses a request for the slot, or null if it is free. */
    private static String taken(Headgate gate) {
        Decision d = gate.check(new Check("api", SLOT).peek());
        return d.allowed() ? null : d.rule();
    }

    private static void check(boolean is, String otherwise) {
        if (!is) throw new AssertionError(otherwise);
    }
}
