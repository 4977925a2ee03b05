package io.github.headgate;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The header field RateLimit: a List of RFC 9651, which is ignored as a whole if it is malformed. */
final class Fields {
    private static final String KEY = "[a-z*][a-z0-9_.*-]*+";
    private static final String STRING = "\"[ !\\x23-\\x5b\\x5d-\\x7e]*+(?:\\\\[\"\\\\][ !\\x23-\\x5b\\x5d-\\x7e]*+)*+\"";
    private static final String VALUE = String.join("|", "-?(?:[0-9]{1,12}\\.[0-9]{1,3}|[0-9]{1,15})", STRING,
            "[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*+", ":[A-Za-z0-9+/=]*+:", "\\?[01]", "@-?[0-9]{1,15}",
            "%\"(?:[ !\\x23\\x24\\x26-\\x7e]|%[0-9a-f]{2})*+\"");
    private static final Pattern PARAMETER = Pattern.compile("; *+(" + KEY + ")(?:=(" + VALUE + "))?");
    private static final Pattern NAME = Pattern.compile(STRING);
    private static final Pattern PLAIN = Pattern.compile("(" + KEY + ")=([0-9]{1,15})");
    private static final Pattern COMMA = Pattern.compile("[ \\t]*+,[ \\t]*+");

    private Fields() {}

    /** Returns the parameters of each member, or null if the field is malformed or empty. */
    static List<Map<String, String>> members(String field) {
        List<Map<String, String>> found = new ArrayList<>();
        String text = trimmed(field);
        for (int at = 0; ; ) {
            Matcher name = NAME.matcher(text).region(at, text.length());
            if (!name.lookingAt()) return null;
            at = name.end();
            Map<String, String> known = new HashMap<>();
            for (Matcher m = PARAMETER.matcher(text); m.region(at, text.length()).lookingAt(); at = m.end()) {
                known.put(m.group(1), m.group(2) == null ? "" : m.group(2));
            }
            found.add(known);
            if (ends(text, at)) return found;
            Matcher comma = COMMA.matcher(text).region(at, text.length());
            if (!comma.lookingAt()) return null;
            at = comma.end();
        }
    }

    /** Returns the seconds of each member of which nothing remains: t, or reset as in draft-07. */
    static List<Long> exhausted(String field) {
        List<Long> seconds = new ArrayList<>();
        List<Map<String, String>> known = members(field);
        if (known == null) {
            Map<String, String> values = plain(field);
            if (number(values.get("remaining")) == 0 && number(values.get("reset")) >= 0) seconds.add(number(values.get("reset")));
            return seconds;
        }
        for (Map<String, String> m : known) {
            if (number(m.get("r")) < 0 || m.containsKey("t") && number(m.get("t")) < 0) return List.of();
            if (number(m.get("r")) == 0 && m.containsKey("t")) seconds.add(number(m.get("t")));
        }
        return seconds;
    }

    /**
     * Returns the value of a field about limits in an answer whose application has set it too. Lists
     * of limits are joined; otherwise there is one limit, which is ours.
     */
    static String joined(String theirs, String name, String ours) {
        boolean list = name.equalsIgnoreCase("RateLimit") || name.equalsIgnoreCase("RateLimit-Policy");
        return list && theirs != null && members(theirs) != null ? theirs + ", " + ours : ours;
    }

    private static Map<String, String> plain(String field) {
        Map<String, String> values = new HashMap<>();
        String text = trimmed(field);
        for (int at = 0; ; ) {
            Matcher m = PLAIN.matcher(text).region(at, text.length());
            if (!m.lookingAt()) return Map.of();
            values.put(m.group(1), m.group(2));
            at = m.end();
            if (ends(text, at)) return values;
            Matcher comma = COMMA.matcher(text).region(at, text.length());
            if (!comma.lookingAt()) return Map.of();
            at = comma.end();
        }
    }

    private static boolean ends(String text, int at) {
        return text.substring(at).isBlank();
    }

    private static String trimmed(String field) {
        return field.replaceAll("^ ++| ++$", "");
    }

    private static long number(String text) {
        return text != null && text.matches("-?[0-9]++") ? Long.parseLong(text) : -1;
    }
}
