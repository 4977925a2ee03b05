package io.github.headgate;

import java.util.LinkedHashMap;
import java.util.Map;

/** A request to check. It does not change. */
public final class Check {
    private final String domain;
    private final Map<String, String> attributes;
    private final long cost;
    private final boolean peek;

    /** A check of cost 1. Attributes are method, path, host, client_ip, header:NAME and others. */
    public Check(String domain, Map<String, String> attributes) {
        this(domain, Map.copyOf(attributes), 1, false);
    }

    private Check(String domain, Map<String, String> attributes, long cost, boolean peek) {
        this.domain = domain;
        this.attributes = attributes;
        this.cost = cost;
        this.peek = peek;
    }

    /** The same check with another cost; 0 is a dry run. */
    public Check cost(long cost) {
        return new Check(domain, attributes, cost, peek);
    }

    /** The same check, which charges nothing. */
    public Check peek() {
        return new Check(domain, attributes, cost, true);
    }

    Map<String, Object> body() {
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("domain", domain);
        body.put("attributes", attributes);
        body.put("cost", cost);
        if (peek) body.put("peek", true);
        return body;
    }
}
