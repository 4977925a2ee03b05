package io.github.headgate;

import io.github.headgate.HeadgateException.Kind;
import io.github.headgate.HeadgateException.Unavailable;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The members of an answer, with checked types. Unknown ones are ignored. */
abstract class Answer {
    private static final Set<String> NUMBERS = Set.of("limit", "remaining", "retry_after_ms", "reset_after_ms", "delay_ms");
    private static final Set<String> FLAGS =
            Set.of("allowed", "in_debt", "counted", "committed", "cancelled", "released", "renewed", "reported");
    private static final Set<String> LISTS = Set.of("shadow", "soft", "rules_gone");
    private static final Set<String> TEXTS =
            Set.of("reason", "rule", "action", "lease", "report", "reservation", "created_at", "changed_at");
    private final Map<String, Object> members;

    Answer(Object value) {
        members = object(value);
        members.forEach((name, v) -> {
            boolean right = v == null
                    || (!NUMBERS.contains(name) || v instanceof Long)
                    && (!FLAGS.contains(name) || v instanceof Boolean)
                    && (!TEXTS.contains(name) || v instanceof String)
                    && (!LISTS.contains(name) || v instanceof List<?> list && list.stream().allMatch(String.class::isInstance));
            if (!right) throw malformed(name + " in the answer is invalid");
        });
    }

    @SuppressWarnings("unchecked") // Json makes no other maps
    static Map<String, Object> object(Object value) {
        if (!(value instanceof Map)) throw malformed("the answer is not an object");
        return (Map<String, Object>) value;
    }

    static Unavailable malformed(String message) {
        return new Unavailable(Kind.MALFORMED, message, null);
    }

    final String text(String name) {
        return (String) members.get(name);
    }

    final Long number(String name) {
        return (Long) members.get(name);
    }

    final Boolean flag(String name) {
        return (Boolean) members.get(name);
    }

    @SuppressWarnings("unchecked") // the constructor has checked the elements
    final List<String> list(String name) {
        return members.get(name) == null ? List.of() : (List<String>) members.get(name);
    }
}
