package io.github.headgate;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Pattern;

/** Reads and writes JSON: objects are maps, arrays lists, whole numbers Long, others Double. */
final class Json {
    private static final int MAX_DEPTH = 100;
    private static final Pattern NUMBER = Pattern.compile("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?");
    private final String text;
    private int at;
    private int depth;

    private Json(String text) {
        this.text = text;
    }

    /** Reads a JSON text. It is absent if it is invalid or null. */
    static Optional<Object> parse(String text) {
        Json json = new Json(text);
        try {
            Object value = json.value();
            json.space();
            return json.at < text.length() ? Optional.empty() : Optional.ofNullable(value);
        } catch (IllegalArgumentException e) {
            return Optional.empty();
        }
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
        if (value instanceof Map<?, ?> members) {
            String next = "{";
            for (Map.Entry<?, ?> e : members.entrySet()) {
                out.append(next);
                quote(out, String.valueOf(e.getKey()));
                out.append(':');
                write(out, e.getValue());
                next = ",";
            }
            out.append(next.equals("{") ? "{}" : "}");
        } else if (value instanceof List<?> elements) {
            String next = "[";
            for (Object e : elements) {
                out.append(next);
                write(out, e);
                next = ",";
            }
            out.append(next.equals("[") ? "[]" : "]");
        } else if (value instanceof CharSequence) {
            quote(out, value.toString());
        } else {
            out.append(value); // a number, a boolean or null
        }
    }

    private static void quote(StringBuilder out, String s) {
        out.append('"');
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < 0x20 || Character.isSurrogate(c)) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        out.append('"');
    }

    private IllegalArgumentException wrong() {
        return new IllegalArgumentException("not JSON at " + at);
    }

    private void space() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
    }

    private boolean take(char c) {
        space();
        if (at < text.length() && text.charAt(at) == c) {
            at++;
            return true;
        }
        return false;
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) throw wrong();
        at += word.length();
        return value;
    }

    private Object value() {
        space();
        if (at == text.length() || ++depth > MAX_DEPTH) throw wrong();
        Object value = switch (text.charAt(at)) {
            case '{' -> object();
            case '[' -> array();
            case '"' -> string();
            case 't' -> word("true", true);
            case 'f' -> word("false", false);
            case 'n' -> word("null", null);
            default -> number();
        };
        depth--;
        return value;
    }

    private Map<String, Object> object() {
        Map<String, Object> members = new LinkedHashMap<>();
        at++;
        if (take('}')) return members;
        do {
            space();
            if (at == text.length() || text.charAt(at) != '"') throw wrong();
            String name = string();
            if (!take(':')) throw wrong();
            members.put(name, value());
        } while (take(','));
        if (!take('}')) throw wrong();
        return members;
    }

    private List<Object> array() {
        List<Object> elements = new ArrayList<>();
        at++;
        if (take(']')) return elements;
        do elements.add(value()); while (take(','));
        if (!take(']')) throw wrong();
        return elements;
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        for (at++; at < text.length(); at++) {
            char c = text.charAt(at);
            if (c == '"') {
                at++;
                return out.toString();
            }
            if (c < 0x20) throw wrong();
            out.append(c == '\\' ? escape() : c);
        }
        throw wrong();
    }

    private char escape() {
        if (++at == text.length()) throw wrong();
        char c = text.charAt(at);
        int known = "\"\\/bfnrt".indexOf(c);
        if (known >= 0) return "\"\\/\b\f\n\r\t".charAt(known);
        if (c != 'u' || at + 4 >= text.length()) throw wrong();
        int code = 0;
        for (int i = 0; i < 4; i++) {
            int digit = Character.digit(text.charAt(++at), 16);
            if (digit < 0) throw wrong();
            code = code * 16 + digit;
        }
        return (char) code;
    }

    private Object number() {
        int start = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) at++;
        String s = text.substring(start, at);
        if (!NUMBER.matcher(s).matches()) throw wrong();
        try {
            return Long.valueOf(s);
        } catch (NumberFormatException e) {
            return Double.valueOf(s);
        }
    }
}
