package io.github.headgate;

/** What all errors of this package are. */
public abstract sealed class HeadgateException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private HeadgateException(String message, Throwable cause) {
        super(message, cause);
    }

    /** How Headgate did not answer. */
    public enum Kind {
        /** Not within the deadline. */
        TIMEOUT,
        /** There was no connection, or it broke. */
        UNREACHABLE,
        /** With a status that is no decision. */
        STATUS,
        /** With a body that is no decision. */
        MALFORMED
    }

    /** Headgate did not answer. */
    public static final class Unavailable extends HeadgateException {
        private static final long serialVersionUID = 1;
        private final Kind kind;

        Unavailable(Kind kind, String message, Throwable cause) {
            super("headgate: " + message, cause);
            this.kind = kind;
        }

        /** How Headgate did not answer. */
        public Kind kind() {
            return kind;
        }
    }

    /** Headgate refused the call itself, such as for a wrong token or an invalid field. */
    public static final class Mistake extends HeadgateException {
        private static final long serialVersionUID = 1;
        private final int status;
        private final String detail;

        Mistake(int status, String detail) {
            super("headgate: " + status + ": " + detail, null);
            this.status = status;
            this.detail = detail;
        }

        /** The HTTP status of the answer. */
        public int status() {
            return status;
        }

        /** What is wrong. */
        public String detail() {
            return detail;
        }
    }

    /** A call that was not sent, as the service asked to wait longer than the longest wait. */
    public static final class Limited extends HeadgateException {
        private static final long serialVersionUID = 1;
        private final long waitMillis;

        Limited(String origin, long waitMillis) {
            super(origin + " asks to wait " + waitMillis + " ms", null);
            this.waitMillis = waitMillis;
        }

        /** How long to wait, in milliseconds. */
        public long waitMillis() {
            return waitMillis;
        }
    }
}
