package io.github.headgate;

import java.util.List;

/** How a reservation, a report or a lease ended. */
public final class Settlement extends Answer {
    private final boolean done;

    Settlement(Object value, String verb) {
        super(value);
        if (flag(verb) == null) throw malformed("the answer does not say " + verb);
        done = flag(verb);
    }

    /** Whether the call did something; if not, reason says why. */
    public boolean done() {
        return done;
    }

    /** Why nothing was done: settled, expired or gone; or null. */
    public String reason() {
        return text("reason");
    }

    /** Whether the real cost was above what was left. */
    public boolean inDebt() {
        return Boolean.TRUE.equals(flag("in_debt"));
    }

    /** Whether a rule counts a reported answer, or null. */
    public Boolean counted() {
        return flag("counted");
    }

    /** The new name of a renewed lease, or null. */
    public String lease() {
        return text("lease");
    }

    /** Rules that no longer exist. */
    public List<String> rulesGone() {
        return list("rules_gone");
    }
}
